"use strict";

const main = document.querySelector("main");
const message = document.getElementById("message");

function showPart(id, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const shown = document.getElementById(id);
  if (shown) {
    shown.replaceWith(template.content);
  } else if (id === "earlier") {
    document.getElementById("conversation").before(template.content);
  } else {
    document.getElementById("conversation").append(template.content);
  }
}

function follow(address, version) {
  const stream = new EventSource(`${address}?version=${version}`);
  stream.onopen = () => { message.textContent = ""; };
  stream.onmessage = (event) => {
    const { parts, removed } = JSON.parse(event.data);
    for (const id of removed) document.getElementById(id)?.remove();
    for (const [id, html] of Object.entries(parts)) showPart(id, html);
  };
  stream.onerror = () => {
    message.textContent = stream.readyState === EventSource.CLOSED
      ? "This page is no longer kept up to date. Reload it; if that is refused, sign in again with the link in the terminal of fugu serve."
      : "The server does not answer. Trying again.";
  };
}

async function send(form, submitter) {
  const body = new URLSearchParams(new FormData(form, submitter));
  try {
    const answer = await fetch(form.action, { method: "POST", body, headers: { Accept: "text/plain" } });
    message.textContent = await answer.text();
    if (answer.ok) form.reset();
  } catch {
    message.textContent = "The server does not answer. Nothing was sent.";
  }
}

if (main.dataset.stream) {
  follow(main.dataset.stream, main.dataset.version);
  document.addEventListener("submit", (event) => {
    if (event.target.closest("main")) {
      event.preventDefault();
      send(event.target, event.submitter);
    }
  });
}
