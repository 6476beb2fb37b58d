"""Reports: the words, the table, and a page drawn from files alone, with the same bytes in another process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from reports.answer import answer, reasons
from reports.numbers import few, milliseconds, percent, plain, short
from reports.page import write_report
from reports.summary_text import summary
from simulator.errors import InputError
from simulator.result import ResultContext, result_dict, write_json, write_requests_csv, write_timeline_csv
from tests.result_folder import VARIANTS, write_folder
from tests.synthetic_log import Server, server_log
from workloads.workload import Workload


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    write_folder(path)
    write_report(path)
    return path


def results() -> dict[str, dict[str, Any]]:
    return {
        name: result_dict(log, ResultContext(model_id="m", gpu="g", name="small", variant=name))
        for name, log in VARIANTS.items()
    }


def test_summary_is_plain_ascii_with_variants_side_by_side() -> None:
    text = summary({"variants": results()})
    assert text.isascii()
    line = next(line for line in text.splitlines() if line.startswith("Successful requests:"))
    assert line.split()[2:] == ["60", "60"]
    assert {len(line) for line in text.splitlines() if line.startswith(("-", "="))} == {68}


def test_summary_of_one_run_looks_like_vllms() -> None:
    text = summary(results()["paged"])
    assert " Serving Benchmark Result " in text
    assert "--- Time per Output Token (excl. 1st token) ---" in text
    assert re.search(r"^Mean TTFT \(ms\): +[\d,.]+$", text, re.MULTILINE)


def test_answer_is_two_sentences_with_the_numbers_of_the_result() -> None:
    runs = results()
    first, second = answer({"variants": runs})
    for run in runs.values():
        assert short(run["output_throughput"]) in first and milliseconds(run["p99_ttft_ms"]) in first
        assert short(run["mean_running"]) in second
    single = answer(runs["paged"])
    assert "60 of 60 requests" in single[0]
    assert "KV memory" in reasons(runs["contiguous"])[0]


def run_of(**changes: Any) -> dict[str, Any]:
    return results()["paged"] | {"saturated": False, "failed": 0, "max_concurrency": None} | changes


def slo(met: bool, attainment: float) -> dict[str, Any]:
    return {"met": met, "attainment": attainment, "limits": []}


def test_runs_that_serve_what_arrives_are_ranked_by_the_slo_and_not_by_the_arrivals() -> None:
    # the bursts happen to end sooner, so that they "deliver" more
    even = run_of(output_throughput=1465.0, p99_ttft_ms=272.0, slo=slo(True, 1.0))
    bursts = run_of(output_throughput=1539.0, p99_ttft_ms=5106.0, slo=slo(False, 0.4))
    first, _ = answer({"variants": {"bursts": bursts, "even": even}})
    assert first.startswith("With even and with bursts the server delivers what is asked for (1,465 and 1,539 ")
    assert first.endswith("272 ms against 5,106 ms: even meets the SLO, bursts misses it.")


def test_a_saturated_run_is_beaten_by_throughput() -> None:
    slow = run_of(output_throughput=100.0, saturated=True, slo=slo(False, 0.1))
    fast = run_of(output_throughput=300.0, slo=slo(False, 0.5))
    first, _ = answer({"variants": {"slow": slow, "fast": fast}})
    assert "With fast the server delivers 300 output tokens/s against 100 with slow (3.00 times" in first
    assert first.endswith(": both miss the SLO.")


def test_equal_shares_of_memory_are_not_compared() -> None:
    run = run_of(kv=results()["paged"]["kv"] | {"token_share_of_held": 0.987})
    assert "KV memory that they hold" not in answer({"variants": {"a": run, "b": run}})[1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_concurrency": 8}, "The load is a closed loop"),
        ({"saturated": True}, "The backlog grew"),
        ({"mean_queue_ms": 50.0, "mean_e2el_ms": 100.0}, "close to its limit"),
        ({"mean_queue_ms": 1.0, "mean_e2el_ms": 100.0}, "keeps up with the load"),
    ],
)
def test_the_last_reason_says_how_the_load_compares(changes: dict[str, Any], words: str) -> None:
    assert words in reasons(run_of(**changes))[-1]


def test_names_of_settings_keep_their_case() -> None:
    assert reasons(run_of(binding_limit="max_num_seqs", wait_shares={"max_num_seqs": 0.7}))[0].startswith(
        "max_num_seqs"
    )


def test_page_says_where_latencies_come_from_and_what_fills_the_memory(tmp_path: Path) -> None:
    write_folder(tmp_path)
    path = tmp_path / "result.json"
    whole = json.loads(path.read_text(encoding="utf-8"))
    gib = 1 << 30
    rows = [
        {"name": "weights", "bytes": 3 * gib, "basis": "exact"},
        {"name": "KV pool", "bytes": 5 * gib, "basis": "-"},
    ]
    for run in whole["variants"].values():
        run |= {"step_time": "roofline", "calibration": "my-server"}
        run |= {"memory": {"rows": rows, "kv_cache_tokens": 40_960, "max_model_len": 4096, "max_concurrency": 10.0}}
    write_json(whole, path)
    text = re.sub(r"\s+", " ", write_report(tmp_path).read_text(encoding="utf-8"))
    head = text[: text.index('id="why"')]
    assert "<td>roofline</td>" in head and "<td>my-server</td>" in head
    assert '<th scope="row">total, as nvidia-smi shows it</th><td>8.00</td><td>8.00</td>' in text
    assert "<td>40,960</td>" in text


def test_answer_of_an_admission_run_names_the_memory_effect() -> None:
    run = {"admitted": 16, "offered": 500, "total_slots": 131072, "allocated_slots": 131072, "used_slots": 16896}
    run |= {"wasted_slots": 114176, "used_share": 0.1289, "binding_limit": "kv_memory"}
    text = summary({"variants": {"contiguous": run, "paged": run | {"admitted": 122, "used_share": 0.993}}})
    assert "122 requests with paged against 16 with contiguous" in " ".join(text.split())
    assert "not a speed benchmark" in text and "12.9%" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (0.04321, "0.0432"), (9.994, "9.99"), (2935.5, "2,936"), (99.96, "100.0")],
)
def test_three_significant_digits(value: float | None, text: str) -> None:
    assert short(value) == text


def test_percent_does_not_hide_what_is_above_zero() -> None:
    assert (few(0.0), few(0.0004), few(0.178)) == ("0", "<0.01", "0.178")
    assert [plain(value) for value in (0.5, 20.0, 1e4, 1e6)] == ["0.5", "20", "10,000", "1,000,000"]
    assert (percent(0.0), percent(0.0001), percent(0.129), percent(None)) == ("0.0%", "<0.1%", "12.9%", "-")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.labelled: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [values["id"]] if values.get("id") else []  # type: ignore[list-item]
        self.links += [value for key, value in attrs if key in ("src", "href", "xlink:href") and value]
        if tag == "svg":
            assert values["role"] == "img"
            self.labelled += str(values["aria-labelledby"]).split()


def test_page_is_self_contained_labelled_and_without_double_ids(folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    assert len(page.ids) == len(set(page.ids))
    assert set(page.labelled) <= set(page.ids) and len(page.labelled) == 8
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not re.search(r"url\((?!#)", text)
    assert text.index('id="answer"') < text.index("<table") < text.index('id="why"') < text.index("<svg")


def test_page_and_drawings_have_the_same_bytes_in_another_process(folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from tests.result_folder import write_folder; from reports.page import write_report\n"
        "path = pathlib.Path(sys.argv[1]); write_folder(path); write_report(path)"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=root)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert len([file for file in files if file.suffix == ".svg"]) == 4
    for file in files:
        assert (folder / file).read_bytes() == (tmp_path / file).read_bytes(), file


def test_a_folder_without_a_run_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"result\.json.*kvplan run"):
        write_report(tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        write_report(tmp_path)


def test_names_from_the_user_are_escaped(tmp_path: Path) -> None:
    write_json({"admitted": 1, "offered": 1, "name": "<script>x</script>", "used_share": 1.0, "wasted_slots": 0,
                "allocated_slots": 1, "used_slots": 1, "total_slots": 1, "binding_limit": "requests"},
               tmp_path / "result.json")  # fmt: skip
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_matplotlib_and_pandas_are_not_imported_by_the_summary() -> None:
    code = "import sys, reports.summary_text, reports.page; sys.exit(bool({'matplotlib', 'pandas'} & set(sys.modules)))"
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_a_table_of_one_variant_does_not_name_it(tmp_path: Path) -> None:
    log = VARIANTS["paged"]
    result = result_dict(log, ResultContext(name="alone", slo={"ttft_ms": {"p99": 500}}))
    write_json(result, tmp_path / "result.json")
    write_requests_csv(log, tmp_path / "requests.csv")
    write_timeline_csv(log, tmp_path / "timeline.csv")
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "p99 of time to first token" in text and "variant</th>" not in text and "class</th>" not in text


def test_a_run_that_served_nobody_still_has_a_report(tmp_path: Path) -> None:
    log, _ = server_log(Workload.from_columns([0, 5], [500, 600], [1, 1]), Server())
    result = result_dict(log, ResultContext(name="empty"))
    write_json(result, tmp_path / "result.json")
    write_requests_csv(log, tmp_path / "requests.csv")
    write_timeline_csv(log, tmp_path / "timeline.csv")
    assert "0 of 2 requests" in summary(result)
    assert "can never be served" in write_report(tmp_path).read_text(encoding="utf-8")
