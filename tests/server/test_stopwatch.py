"""What `maple bench --server` measures, on small sizes: a stream from a real server, read by another process."""

from __future__ import annotations

from maple_spec.bench.measure import Plan
from maple_spec.bench.synthetic import synthetic_weights
from maple_spec.kernels.native import ModelWeights, variants
from maple_spec.server.stopwatch import serve_and_measure
from tests.bench.test_bench import SMALL


def test_a_stream_over_http_takes_longer_than_the_kernels_alone() -> None:
    *_, weights = synthetic_weights(SMALL)
    assert isinstance(weights, ModelWeights)
    served = serve_and_measure(weights, Plan(variants()[0], rounds=2), lambda _: None)["served"]
    assert len(served["pairs"]) == 2
    assert 0 < served["alone"] < served["streamed"]
