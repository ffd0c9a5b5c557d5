// Keeps the page up to date: server-sent events carry the parts that changed. Without this script the page is a snapshot.
// The server wrote and escaped all HTML that is inserted here.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const table = byId("table"), form = byId("filter"), live = byId("live"), words = byId("live-words");
  const retry = byId("retry"), said = byId("said");
  const LONGEST_PAUSE = 30, STALE_SECONDS = 40, HIDDEN_SECONDS = 60;
  let source = null, stamp = document.body.dataset.stamp, failures = 0, timer = 0, heardAt = 0, shownAt = 0;
  let announce = false;

  // -- addresses
  const asked = () => new URLSearchParams(location.search);
  const streamAddress = () => {
    const query = asked();
    query.set("stamp", stamp);
    return "console/stream?" + query;
  };

  // -- the picture: make `old` like `fresh` with as few changes as possible, so that focus, selection and open
  //    details are kept
  const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
  function morph(old, fresh) {
    if (old.nodeType === Node.TEXT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    for (const { name } of [...old.attributes])
      if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes)
      if (old.getAttribute(name) !== value && !(name === "open" && old.nodeName === "DETAILS")) old.setAttribute(name, value);
    if (old.nodeName === "PROGRESS") old.value = fresh.value;
    morphChildren(old, fresh);
  }
  function morphChildren(old, fresh) {
    const wanted = [...fresh.childNodes];
    wanted.forEach((node, index) => {
      const there = old.childNodes[index];
      if (there === undefined) old.append(node);
      else if (same(there, node)) morph(there, node);
      else there.replaceWith(node);
    });
    while (old.childNodes.length > wanted.length) old.lastChild.remove();
  }
  function parse(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  }
  function put(id, html) {
    const part = byId(id);
    if (part) morphChildren(part, parse(html));
  }
  function putRows(rows, order) {
    for (const [id, html] of Object.entries(rows)) {
      const fresh = parse("<table>" + html + "</table>").querySelector("tbody");
      const old = byId(id);
      if (old) morph(old, fresh);
      else table.append(fresh);
    }
    if (!order) return;
    const wanted = new Set(order);
    for (const body of [...table.tBodies]) if (!wanted.has(body.id)) body.remove();
    order.forEach((id, index) => {
      const body = byId(id), there = table.tBodies[index];
      if (body && body !== there) table.insertBefore(body, there || null);
    });
  }
  function update(event) {
    heard();
    const change = JSON.parse(event.data);
    stamp = change.stamp;
    for (const [id, html] of Object.entries(change.parts)) put(id, html);
    putRows(change.rows, change.order);
    age();
    if (announce) {
      said.textContent = byId("count").textContent;
      announce = false;
    }
  }

  // -- times
  const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];
  function span(seconds) {
    for (const [unit, length] of UNITS) if (seconds >= 2 * length) return Math.floor(seconds / length) + " " + unit;
    return Math.floor(seconds) + " s";
  }
  function age() {
    const now = Date.now();
    for (const time of document.querySelectorAll("time[datetime]")) {
      const seconds = (now - Date.parse(time.dateTime)) / 1000;
      if (Number.isNaN(seconds)) continue;
      const text = seconds < -1 ? "in " + span(-seconds) : seconds < 2 ? "now" : span(seconds) + " ago";
      if (time.textContent !== text) time.textContent = text;
    }
  }

  // -- the connection
  function show(state, text) {
    live.className = state;
    if (words.textContent !== text) words.textContent = text;
    retry.hidden = state !== "lost";
  }
  function heard() {
    failures = 0;
    heardAt = shownAt = Date.now();
    show("live", "Live");
  }
  function connect() {
    clearTimeout(timer);
    if (source) source.close();
    source = new EventSource(streamAddress());
    heardAt = Date.now();
    source.addEventListener("open", heard);
    source.addEventListener("update", update);
    source.addEventListener("beat", heard);
    source.addEventListener("error", lost);
  }
  async function lost() {
    if (source) source.close();
    source = null;
    const since = new Date(shownAt || Date.now()).toLocaleTimeString();
    failures += 1;
    const pause = Math.min(LONGEST_PAUSE, 2 ** (failures - 1));
    if (failures === 1) show("", "Reconnecting");
    else show("lost", "Connection lost. This page shows the state at " + since + ". It reconnects automatically.");
    if (failures > 1 && (await turnedAway())) {
      location.reload(); // the server shows the reason
      return;
    }
    clearTimeout(timer);
    timer = setTimeout(connect, pause * 1000);
  }
  async function turnedAway() {
    try {
      return [401, 403].includes((await fetch("console", { method: "HEAD", cache: "no-store" })).status);
    } catch {
      return false;
    }
  }

  // -- filter and pages without leaving the page
  function go(search) {
    const query = new URLSearchParams(search);
    for (const [name, value] of [...query]) if (!value) query.delete(name);
    if (query.get("size") === "50") query.delete("size");
    const text = query.toString();
    history.replaceState(null, "", text ? "?" + text : location.pathname);
    for (const name of ["q", "state"]) if (form.elements[name].value !== (query.get(name) || "")) form.elements[name].value = query.get(name) || "";
    announce = true;
    stamp = "";
    connect();
  }
  const fromForm = () => go(new URLSearchParams(new FormData(form)));
  let typing = 0;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typing);
    fromForm();
  });
  form.elements.q.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(fromForm, 250);
  });
  form.elements.state.addEventListener("change", fromForm);
  form.elements.size.addEventListener("change", fromForm);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-page], a[data-state], #empty a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(new URL(link.href).search);
    if (link.dataset.page) byId("services").focus();
  });
  retry.addEventListener("click", connect);
  let hiding = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (!document.hidden) {
      if (!source) connect();
      return;
    }
    hiding = setTimeout(() => {
      clearTimeout(timer);
      if (source) source.close();
      source = null;
      show("", "Paused while the page is hidden");
    }, HIDDEN_SECONDS * 1000);
  });
  addEventListener("online", connect);
  addEventListener("pagehide", () => source && source.close());

  setInterval(() => {
    age();
    if (source && Date.now() - heardAt > STALE_SECONDS * 1000) lost();
  }, 5000);
  byId("show").hidden = true; // the filter applies automatically
  show("", "Connecting");
  connect();
})();
