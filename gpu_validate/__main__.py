"""``python -m gpu_validate check|compile|calibrate|predict``."""

from __future__ import annotations

import sys

from gpu_validate.cli import main

sys.exit(main())
