const fields = ["q", "k", "by", "where", "rerank"];
const root = location.pathname.replace(/\/*$/, "/"); // a proxy may show the page below a path
let about = null;
let running = null;

// The first click on an answer is recorded, if the server records searches.
function recordClick(item, search, position) {
  item.addEventListener("click", () => {
    const headers = { "Content-Type": "application/json" };
    fetch(`${root}api/click`, { method: "POST", headers, body: JSON.stringify({ search, position }), keepalive: true }).catch(() => {});
  }, { once: true });
}

function answerItem(answer, search) {
  const head = element("div", "head", element("span", "rank", answer.rank), element("h2", "", answer.title || answer.doc_id));
  head.append(element("span", "score", `${answer.score.toPrecision(4)}${answer.reranked ? " reranked" : ""}`));
  const item = element("li", "", head);
  item.tabIndex = -1;
  if (answer.title && answer.title !== answer.doc_id) item.append(element("div", "id", answer.doc_id));
  if (answer.question) item.append(element("p", "asked", answer.question));
  const values = Object.entries(answer.metadata).filter(([, value]) => value !== null && value !== "");
  if (values.length) {
    const chips = values.map(([name, value]) => element("li", "", element("b", "", `${name} `), String(value)));
    item.append(element("ul", "values", ...chips));
  }
  item.append(element("div", "text", ...withMarks(answer.excerpt, answer.highlights)));
  if (answer.almost_equal_count) {
    const more = answer.almost_equal_count > answer.almost_equal.length ? [element("li", "", "...")] : [];
    const ids = element("ul", "id", ...answer.almost_equal.map((id) => element("li", "", id)), ...more);
    const count = answer.almost_equal_count.toLocaleString("en");
    item.append(element("details", "", element("summary", "", `+${count} almost equal`), ids));
  }
  if (answer.excerpt !== answer.text) {
    const whole = element("details", "", element("summary", "", "Whole passage"), element("div", "text", answer.text));
    item.append(whole);
  }
  if (search) recordClick(item, search, answer.rank);
  return item;
}

function showStatus(status, error = "", notices = []) {
  at("status").replaceChildren(status);
  at("notices").textContent = notices.join("\n");
  at("notices").hidden = !notices.length;
  at("error").textContent = error;
  at("error").hidden = !error;
}

function welcome() {
  at("answers").replaceChildren();
  document.title = at("title").textContent;
  if (!about.example) return showStatus("");
  const link = element("a", "example", about.example);
  link.href = `?${new URLSearchParams({ q: about.example })}`;
  showStatus(element("span", "", "For example: ", link));
}

async function search() {
  running?.abort();
  const current = (running = new AbortController());
  const question = at("q").value;
  if (!question.trim()) return welcome();
  document.title = `${question.slice(0, 80)} · ${about.title}`;
  document.body.classList.add("loading");
  showStatus("Searching ...");
  const request = { q: question, k: Number(at("k").value), by: at("by").value, where: at("where").value || null, rerank: Number(at("rerank").value) };
  try {
    const headers = { "Content-Type": "application/json" };
    const result = await fetchJson(`${root}api/search`, { method: "POST", headers, body: JSON.stringify(request), signal: current.signal });
    at("answers").replaceChildren(...result.answers.map((answer) => answerItem(answer, result.search)));
    const number = result.answers.length;
    const took = `${result.milliseconds < 10 ? result.milliseconds.toFixed(1) : result.milliseconds.toFixed(0)} ms`;
    const nothing = result.where ? "No document matches the condition" : "Nothing found";
    showStatus(`${number ? counted(number, "document") : nothing}, ${took}`, "", result.notices);
  } catch (error) {
    if (error.name === "AbortError") return;
    at("answers").replaceChildren();
    showStatus("", error.message);
  }
  if (running === current) document.body.classList.remove("loading");
}

function fromAddress() {
  const parameters = new URLSearchParams(location.search);
  at("q").value = parameters.get("q") ?? "";
  at("k").value = parameters.get("k") ?? about.k;
  at("by").value = about.ways[parameters.get("by")] ? parameters.get("by") : about.by;
  at("where").value = parameters.get("where") ?? "";
  at("rerank").value = parameters.get("rerank") ?? about.rerank;
  search();
}

function toAddress() {
  const defaults = { q: "", k: String(about.k), by: about.by, where: "", rerank: String(about.rerank) };
  const changed = fields.map((name) => [name, at(name).value]).filter(([name, value]) => value !== defaults[name]);
  const address = `${location.pathname}${changed.length ? "?" : ""}${new URLSearchParams(changed)}`;
  if (address !== location.pathname + location.search) history.pushState(null, "", address);
}

function move(step) {
  const items = [...at("answers").children];
  const next = items.indexOf(document.activeElement) + step;
  if (next < 0) at("q").focus();
  else items[Math.min(next, items.length - 1)]?.focus();
}

function open(item) {
  item.click();
  const whole = item.querySelector("details");
  if (whole) whole.open = !whole.open;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select");
  if (event.key === "/" && !typing) at("q").select();
  else if (event.key === "ArrowDown" && (!typing || event.target === at("q"))) move(1);
  else if (event.key === "ArrowUp" && !typing) move(-1);
  else if (event.key === "Enter" && event.target.matches("#answers > li")) open(event.target);
  else return;
  event.preventDefault();
});

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  toAddress();
  search();
});
at("by").addEventListener("change", () => at("form").requestSubmit());
addEventListener("popstate", fromAddress);

async function start() {
  try {
    about = await fetchJson(`${root}api`);
  } catch (error) {
    return showStatus("", error.message);
  }
  at("title").textContent = about.title;
  at("about").textContent = `${about.passages.toLocaleString("en")} passages, recipe ${about.recipe}${about.recorded ? " · Questions and clicks are recorded." : ""}`;
  at("k").max = about.passages;
  at("rerank").max = about.rerank;
  at("reranks").hidden = !about.rerank;
  at("reranks").title = about.reranker ? `Passages that ${about.reranker} scores again` : "";
  at("by").replaceChildren(...Object.entries(about.ways).map(([way, label]) => new Option(label, way)));
  at("ways").hidden = Object.keys(about.ways).length < 2;
  const columns = Object.entries(about.columns);
  at("filter").hidden = at("columns").hidden = !columns.length;
  if (columns.length) {
    const named = columns.flatMap(([name, type]) => [element("code", "", name), ` (${type}), `]);
    named.push(named.pop().slice(0, -2));
    at("columns").replaceChildren("Columns: ", ...named);
    at("where").placeholder = columns[0][1] === "text" ? `${columns[0][0]} = '...'` : `${columns[0][0]} > ...`;
  }
  fromAddress();
}

start();
