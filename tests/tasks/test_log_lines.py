"""Log lines of the library reach the node whose thread logs them."""

import logging
import threading

from tasks.log_lines import log_lines

LOG = logging.getLogger("pipeline.runtime.gpu_ranks")


def test_each_thread_gets_its_own_lines() -> None:
    lines: dict[str, list[str]] = {"a": [], "b": []}
    both = threading.Barrier(2)

    def node(name: str) -> None:
        with log_lines(lines[name].append):
            both.wait()
            LOG.info("%s of %d GPUs", name, 8)
            LOG.debug("a detail")
            both.wait()
        LOG.info("after the work")

    threads = [threading.Thread(target=node, args=(name,)) for name in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lines == {"a": ["a of 8 GPUs"], "b": ["b of 8 GPUs"]}


def test_other_handlers_get_the_lines_only_outside_of_a_node(caplog) -> None:
    lines: list[str] = []
    with caplog.at_level(logging.INFO, "pipeline"):
        with log_lines(lines.append):
            LOG.info("inside")
        LOG.info("outside")
    assert lines == ["inside"]
    assert [record.getMessage() for record in caplog.records] == ["outside"]
