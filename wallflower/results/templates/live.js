// Keeps a page as its server tells it. Only what changed is touched, so that the focus,
// the selection and what was folded out stay.
"use strict";
(() => {
  const line = document.getElementById("line");
  const source = new EventSource(document.body.dataset.events);
  let lost = false;

  const say = (text) => {
    if (line.textContent !== text) line.textContent = text;
    line.className = text ? "line" : "";
  };

  const morph = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.data = fresh.data;
      return;
    }
    for (const { name } of [...old.attributes])
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes)
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const olds = [...old.childNodes];
    const news = [...fresh.childNodes];
    news.forEach((node, place) => {
      if (place < olds.length) morph(olds[place], node);
      else old.append(node);
    });
    olds.slice(news.length).forEach((node) => node.remove());
  };

  source.addEventListener("part", (event) => {
    const { part, html } = JSON.parse(event.data);
    if (part === "title") {
      document.title = html;
      return;
    }
    const old = document.getElementById(`part-${part}`);
    const parsed = new DOMParser().parseFromString(html, "text/html");
    const fresh = document.createElement("div");
    fresh.id = old.id;
    fresh.append(...parsed.body.childNodes);
    morph(old, fresh);
  });

  source.addEventListener("open", () => {
    lost = false;
    say("");
  });

  source.addEventListener("error", () => {
    if (!lost) {
      lost = true;
      const since = new Date().toISOString().slice(11, 19);
      say(
        `Not live: since ${since} UTC the page's server does not answer. Shown is ` +
          "what it told last; it is asked again every second."
      );
    }
    // A server that answers, but not with events, may want its token again.
    if (source.readyState === EventSource.CLOSED)
      setTimeout(() => location.reload(), 5000);
  });
})();
