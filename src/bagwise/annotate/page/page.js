// One row at a time. The server keeps every label before it answers, so nothing lives here alone:
// a page that is closed, reloaded or opened twice shows what is open, and nothing is sent twice.
"use strict";

const $ = (id) => document.getElementById(id);
const FEW = 9; // classes that have a key of their own
let state = null;
let busy = false;

function say(text) { $("message").textContent = text; }

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Error("The server does not answer. What it confirmed is kept; start it again with "
      + "bagwise annotate serve, and open its link.");
  }
  const content = await response.json().catch(() => ({}));
  if (!response.ok && response.status !== 409) {
    throw new Error(content.error || `The server refused (${response.status}).`);
  }
  return content;
}

// One request at a time: a key that is held down must not answer for rows nobody has seen.
async function doing(action) {
  if (busy) return;
  busy = true;
  try {
    await action();
  } catch (problem) {
    say(problem.message);
  } finally {
    busy = false;
  }
}

function show(next) {
  state = next;
  document.title = `${next.labelled} of ${next.asked}: ${next.label}`;
  $("title").textContent = `Label: ${next.label}`;
  $("bar").max = next.asked;
  $("bar").value = next.labelled;
  $("count").textContent = `${next.labelled} of ${next.asked} labels`;
  $("done").hidden = next.task !== null;
  $("task").hidden = $("skip").disabled = next.task === null;
  if (next.task === null) return;
  $("row").textContent = `Row ${next.task.id}`;
  $("cells").replaceChildren(...next.task.cells.map(([name, value]) => {
    const line = document.createElement("tr");
    const head = document.createElement("th");
    const cell = document.createElement("td");
    head.scope = "row";
    head.textContent = name;
    cell.textContent = value;
    line.append(head, cell);
    return line;
  }));
  const few = next.classes !== null && next.classes.length <= FEW;
  $("classes").hidden = !few;
  $("number").hidden = few;
  if (few) {
    showClasses(next.classes);
  } else {
    $("asked").textContent = `${next.label}: ${next.describe}`;
    $("value").value = "";
    $("value").focus();
  }
}

function showClasses(classes) {
  if ($("classes").childElementCount === classes.length) return;
  $("classes").replaceChildren(...classes.map((name, place) => {
    const button = document.createElement("button");
    const key = document.createElement("kbd");
    key.textContent = String(place + 1);
    button.type = "button";
    button.append(name, " ", key);
    button.addEventListener("click", () => keep(name));
    return button;
  }));
}

function refresh(after) {
  return doing(async () => show(await ask(`/api/state?after=${after}`)));
}

function keep(value) {
  if (state === null || state.task === null) return;
  const id = state.task.id;
  doing(async () => {
    const next = await ask("/api/answer", { id, value });
    say(next.error || "");
    show(next);
  });
}

function later() {
  if (state !== null && state.task !== null) {
    say("");
    refresh(state.task.place);
  }
}

function undo() {
  doing(async () => {
    const next = await ask("/api/undo", {});
    show(next);
    say(next.undone ? "The last label was taken back." : "There is nothing to take back.");
  });
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const value = $("value").value.trim();
  if (value) keep(value);
});
$("skip").addEventListener("click", later);
$("undo").addEventListener("click", undo);
document.addEventListener("keydown", (event) => {
  if (event.repeat) {
    if (event.key === "Enter") event.preventDefault();
    return;
  }
  if (event.key === "Escape") {
    event.preventDefault();
    later();
  } else if (event.key === "z" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    undo();
  } else if (!$("classes").hidden && /^[1-9]$/.test(event.key) && state !== null
      && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const name = state.classes[Number(event.key) - 1];
    if (name !== undefined) keep(name);
  }
});
// Another window may have labelled the row that this one shows.
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible" && state !== null && $("value").value === "") {
    refresh(state.task === null ? 0 : state.task.place - 1);
  }
});
refresh(0);
