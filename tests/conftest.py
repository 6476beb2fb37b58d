"""Settings for all tests: how Hypothesis searches.

``make test`` takes the same examples every time and has no time limit per example (cores may be shared);
``make test-all`` looks for new ones (``--hypothesis-profile=search``).
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "search", deadline=None, print_blob=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")
