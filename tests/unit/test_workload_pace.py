"""``workload.rate_rps``: the same requests at another rate."""

import numpy as np
import pytest

from simulator.random_streams import Streams
from workloads.arrivals import AllAtOnce, ClosedLoop, Poisson, Replay
from workloads.build import build_workload
from workloads.config import WorkloadConfig
from workloads.errors import WorkloadError
from workloads.lengths import Fixed, Lognormal
from workloads.pace import own_rate_rps
from workloads.workload import PS_PER_S, Workload


def workload(arrivals: object, rate_rps: float | None = None, **more: object) -> Workload:
    config = WorkloadConfig(
        num_requests=400,
        arrivals=arrivals,  # type: ignore[arg-type]
        prompt_tokens=Lognormal(mean=100.0, cv=1.0),
        output_tokens=Fixed(tokens=10),
        rate_rps=rate_rps,
        **more,  # type: ignore[arg-type]
    )
    return build_workload(config, Streams(3))


def test_all_times_are_stretched_by_one_factor_and_nothing_else_changes() -> None:
    plain, fast = workload(Poisson(rate_rps=4.0)), workload(Poisson(rate_rps=4.0), 16.0)
    assert np.abs(fast.arrival_ps - plain.arrival_ps / 4).max() <= 0.5
    assert (fast.prompt_tokens == plain.prompt_tokens).all()
    assert fast.requested_rate_rps == 16.0


def test_the_same_as_drawing_at_that_rate() -> None:
    drawn, paced = workload(Poisson(rate_rps=16.0)), workload(Poisson(rate_rps=4.0), 16.0)
    assert np.abs(drawn.arrival_ps - paced.arrival_ps).max() < 10_000  # picoseconds of a run of half a minute


def test_times_without_a_stated_rate_have_the_rate_of_their_span() -> None:
    times = tuple(float(i) for i in range(400))
    found = workload(Replay(times_s=times), 8.0)
    assert own_rate_rps(workload(Replay(times_s=times))) == pytest.approx(1.0)
    assert int(np.ptp(found.arrival_ps)) == 399 * PS_PER_S // 8


@pytest.mark.parametrize("arrivals", [ClosedLoop(max_concurrency=4), AllAtOnce()])
def test_what_has_no_rate_cannot_be_stretched(arrivals: object) -> None:
    with pytest.raises(WorkloadError, match="which no rate can stretch"):
        workload(arrivals, 2.0)
