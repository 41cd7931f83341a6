const names = ["not relevant", "related", "answers in part", "answers"];
let state = null;
let noted = null; // the passage that the note is about
let last = Promise.resolve();
let continues = false; // the judge wants to judge more questions after the end of the comparison

// One action after the other: a key that is pressed while an answer is awaited must act on the passage after it.
function inTurn(action) {
  last = last.then(action).catch((error) => showError(error.message));
  return last;
}

function showError(text) {
  at("error").textContent = text;
  at("error").hidden = !text;
}

async function change(path, values) {
  const headers = { "Content-Type": "application/json" };
  try {
    const before = state?.question?.query_id;
    const focused = path === "undo" ? null : current()?.dataset.id; // an undo leads to the first open passage
    state = await fetchJson(`/api/${path}`, { method: "POST", headers, body: JSON.stringify(values) });
    showError("");
    show(before === state.question?.query_id ? focused : null, path === "grade");
    return true;
  } catch (error) {
    showError(error.message);
    state = await fetchJson("/api/state");
    show(null, false);
    return false;
  }
}

const items = () => [...at("passages").children];
const current = () => at("passages").querySelector("[aria-current]");

function setCurrent(item, moves = true) {
  for (const other of items()) other.removeAttribute("aria-current");
  if (!item) return undefined;
  item.setAttribute("aria-current", "true");
  if (!moves) return showStatus();
  item.focus({ preventScroll: true });
  item.scrollIntoView({ block: "center" }); // the eyes stay at one place
  return showStatus();
}

function passageItem(passage) {
  const item = element("li", passage.grade === null ? "" : "graded");
  item.dataset.id = passage.passage_id;
  item.tabIndex = -1;
  item.append(element("div", "head", element("h2", "", passage.title || passage.passage_id)));
  item.append(element("div", "text", ...withMarks(passage.excerpt, passage.highlights)));
  if (passage.excerpt !== passage.text) {
    item.append(element("details", "", element("summary", "", "Whole passage"), element("div", "text", passage.text)));
  }
  if (passage.note) item.append(element("p", "note", `Note: ${passage.note}`));
  const grades = element("div", "grades");
  grades.setAttribute("role", "group");
  grades.setAttribute("aria-label", "Grade");
  names.forEach((name, grade) => {
    const button = element("button", "", String(grade));
    button.type = "button";
    button.title = name;
    button.setAttribute("aria-label", `${grade}, ${name}`);
    button.setAttribute("aria-pressed", String(passage.grade === grade));
    button.addEventListener("click", () => inTurn(() => giveGrade(item.dataset.id, grade)));
    grades.append(button);
  });
  item.append(grades);
  item.addEventListener("mousedown", () => setCurrent(item, false));
  return item;
}

// `focused`: the passage that was the current one. `forward`: the next passage without a grade becomes it.
function show(focused, forward) {
  const ended = !continues && (state.decided || state.next_look === null);
  const waits = ended || state.question === null;
  at("question").textContent = ended ? "The comparison has ended." : waits ? "All questions are judged." : state.question.text;
  at("more").hidden = !ended;
  document.title = waits ? "Judge" : `${state.question.text.slice(0, 80)} · Judge`;
  closeNote(); // before the list that may hold it is replaced
  at("passages").replaceChildren(...(waits ? [] : state.passages.map(passageItem)));
  showPlan();
  showStatus();
  if (ended) return at("show").focus();
  if (waits) {
    if (!state.total) at("question").textContent = "Type the first question.";
    return at("ask").focus();
  }
  const all = items();
  const start = Math.max(0, all.findIndex((item) => item.dataset.id === focused));
  const inOrder = [...all.slice(start), ...all.slice(0, start)];
  const open = inOrder.find((item) => !item.classList.contains("graded"));
  if (focused === null) scrollTo(0, 0);
  return setCurrent((focused !== null && !forward && all[start]) || open || all[0]);
}

function showStatus() {
  if (!items().length) {
    at("status").textContent = counted(state.minutes, "minute");
    at("progress").hidden = true;
    return;
  }
  const graded = state.passages.filter((passage) => passage.grade !== null).length;
  const place = items().indexOf(current()) + 1;
  at("status").textContent = `Question ${state.number} of ${state.total} · passage ${place} of ${state.passages.length} · ${counted(state.minutes, "minute")}`;
  at("progress").hidden = false;
  at("progress").max = state.passages.length;
  at("progress").value = graded;
}

function outcome() {
  const next = state.next_look === null ? "" : ` The next test is after ${state.next_look} questions.`;
  if (state.decided) return `The difference is significant after ${state.looked_at} questions. You can stop.`;
  if (state.looked_at === null) return `No test yet.${next}`;
  const found = `No significant difference after ${state.looked_at} of ${state.planned} planned questions.`;
  if (state.needed === null) return `${found} The systems do not differ so far.${next}`;
  const more = Math.max(state.needed, state.next_look ?? 0) - state.counted;
  if (state.next_look === null) return `${found} A plan of about ${state.needed} questions may show one.`;
  return `${found} About ${more} more may show one.${next}`;
}

function showPlan() {
  at("outcome").textContent = outcome();
  const parts = [`${counted(state.counted, "question")} ${state.counted === 1 ? "counts" : "count"}`];
  if (state.without_relevant) parts.push(`${state.without_relevant} without a relevant passage do not`);
  if (state.skipped) parts.push(`${state.skipped} skipped`);
  at("counts").textContent = parts.join(", ");
}

const share = (value) => value.toFixed(3).replace(/^(-?)0\./, "$1.").replace("-", "−");
const interval = (figure) => `${share(figure.mean)} [${share(figure.low)}, ${share(figure.high)}]`;

function table(heading, rows) {
  const line = (tag, values) => element("tr", "", ...values.map((value) => element(tag, "", String(value))));
  return element("table", "", element("thead", "", line("th", heading)), element("tbody", "", ...rows.map((row) => line("td", row))));
}

async function showComparison() {
  const found = await fetchJson("/api/comparison");
  const label = (name) => found.labels[name];
  const systems = Object.entries(found.systems).map(([name, figures]) => [label(name), interval(figures[found.measure])]);
  const differences = Object.entries(found.differences).map(([pair, figures]) => {
    const figure = figures[found.measure];
    const p = figure.p_holm < 0.001 ? "< .001" : share(figure.p_holm);
    return [pair.split(" - ").map(label).join(" − "), interval(figure), p, figure.wins, figure.ties, figure.losses];
  });
  at("comparison").replaceChildren(
    table([counted(found.questions, "question"), `${found.measure} [95 % interval]`], systems),
    table(["difference", "mean [95 % interval]", "p (Holm)", "wins", "ties", "losses"], differences),
  );
  at("comparison").hidden = false;
  at("comparison").focus();
}

const giveGrade = (passage_id, grade) => change("grade", { query_id: state.question.query_id, passage_id, grade });

function openNote() {
  const item = current();
  noted = item.dataset.id;
  at("note").value = state.passages.find((passage) => passage.passage_id === noted).note;
  item.append(at("note-form"));
  at("note-form").hidden = false;
  at("note-form").scrollIntoView({ block: "center" });
  at("note").focus({ preventScroll: true });
}

function closeNote() {
  at("passages").after(at("note-form"));
  at("note-form").hidden = true;
}

function move(step) {
  const all = items();
  setCurrent(all[Math.min(Math.max(all.indexOf(current()) + step, 0), all.length - 1)]);
}

function act(key) {
  if (key === "u") return change("undo", {});
  if (key === "/") return at("ask").select();
  if (state.question === null || !current()) return undefined;
  if ("0123".includes(key)) return giveGrade(current().dataset.id, Number(key));
  if (key === "r") return giveGrade(null, 0);
  if (key === "s") return change("skip", { query_id: state.question.query_id });
  if (key === "n") return openNote();
  if (key === "ArrowDown") return move(1);
  if (key === "ArrowUp") return move(-1);
  const details = current().querySelector("details");
  if (details) details.open = !details.open;
  return undefined;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input")) {
    if (event.key !== "Escape") return;
    closeNote();
    setCurrent(current());
    return;
  }
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (!["0", "1", "2", "3", "r", "u", "s", "n", "w", "/", "ArrowDown", "ArrowUp"].includes(key)) return;
  event.preventDefault();
  if (event.repeat && !key.startsWith("Arrow")) return; // a key that is held down must not grade the next passages
  inTurn(() => act(key));
});

at("note-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("note").value;
  closeNote();
  inTurn(() => change("note", { query_id: state.question.query_id, passage_id: noted, text }));
});

at("ask-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("ask").value;
  inTurn(async () => {
    if (await change("question", { text })) at("ask").value = "";
  });
});

at("more").addEventListener("click", () => inTurn(() => {
  continues = true;
  show(null, false);
}));

at("show").addEventListener("click", () => inTurn(showComparison));

inTurn(async () => {
  state = await fetchJson("/api/state");
  show(null, false);
});
