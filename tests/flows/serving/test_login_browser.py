"""The login in a real browser, below a root path."""

import pytest
from browser import CHROMIUM, open_page
from serving import computed, served

from flows.serving import service
from flows.serving.access import Access
from flows.serving.http import HOSTS

TOKEN = "correct-horse-battery-staple"
ANSWERED = "document.querySelectorAll('#answers > li').length === 1"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which is not installed")
def test_a_person_logs_in_and_searches(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(service, "ask", lambda run, questions, known: computed([(one, None) for one in questions]))

    def visit(port: int) -> None:
        site, other = (f"http://{host}:{port}/team" for host in ("localhost", "127.0.0.1"))
        with open_page(f"{site}/?q=zebra&k=1", tmp_path) as page:
            page.wait("document.readyState === 'complete' && document.activeElement.id === 'token'")
            page.type("wrong")
            page.press("Enter")
            page.wait("document.getElementById('error').textContent === 'the token is wrong'")
            page.value("document.getElementById('token').value = ''")
            page.type(TOKEN)
            page.press("Enter")
            page.wait(ANSWERED)
            assert page.value("location.href") == f"{site}/?q=zebra&k=1"
            assert page.value("document.cookie") == ""  # no script reads it
            page.leave_for(site)  # without `/` at its end
            page.wait("document.title === 'A title'")
            page.leave_for(f"{other}/login")
            page.wait(f"location.href === '{other}/login' && document.title === 'Log in'")
            page.leave_for(f"{site}/?q=zebra&k=1")  # a link on another site
            page.wait(ANSWERED)

    served(visit, Access(TOKEN, HOSTS, "/team"))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which is not installed")
def test_an_address_with_two_slashes_leads_to_no_other_site_after_the_login(tmp_path) -> None:
    def visit(port: int) -> str:
        with open_page(f"http://localhost:{port}//127.0.0.1:{port}/x?q=zebra", tmp_path) as page:
            page.wait("document.readyState === 'complete' && document.activeElement.id === 'token'")
            page.type(TOKEN)
            page.press("Enter")
            page.wait("location.hostname !== 'localhost' || document.body.innerText.includes('no such page')")
            return page.value("location.href").replace(str(port), "PORT")

    assert served(visit, Access(TOKEN)) == "http://localhost:PORT//127.0.0.1:PORT/x?q=zebra"
