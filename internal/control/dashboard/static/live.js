// Puts the parts of the page that the node has drawn anew in their places, as long as the page is looked at.
"use strict";
(function () {
  const login = document.getElementById("login");
  if (login) { // `trireme dashboard` prints a link with a code behind the #, which browsers send nowhere
    const code = decodeURIComponent(location.hash.slice(1));
    if (code.startsWith("trd1.")) {
      history.replaceState(null, "", location.pathname);
      document.getElementById("token").value = code;
      login.querySelector("button").focus(); // a person logs in: somebody else's link must not do it unseen
    }
    return;
  }
  // A link to another node logs in there: this node has the other one make a code that does so once. If that cannot be, or for another
  // tab, the link leads to the empty login form.
  document.addEventListener("click", function (e) {
    const a = e.target.closest("a[data-elsewhere]"), token = document.querySelector("[name=action_token]");
    if (!a || !token || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    const plain = a.href;
    fetch("/ui/elsewhere", { method: "POST", redirect: "error", signal: AbortSignal.timeout(3000),
      body: new URLSearchParams({ action_token: token.value, node: a.dataset.elsewhere }) })
      .then(res => res.ok ? res.json() : Promise.reject())
      .then(answer => location.assign(answer.link), () => location.assign(plain));
  });

  const live = document.getElementById("live"), resume = document.getElementById("resume");
  const patience = 5000; // ms without a frame, of which there is one each second
  let stream = null;
  let again = 0;
  let heard = Date.now();

  // A keyboard user's place in a part that is replaced is kept: the same link, or the same control, has the focus afterwards.
  function put(id, html) {
    const part = document.getElementById(id);
    if (!part || part.innerHTML === html) return;
    const held = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    part.innerHTML = html;
    if (held !== null) {
      for (const a of part.querySelectorAll("a")) if (a.getAttribute("href") === held) { a.focus({ preventScroll: true }); break; }
    }
  }

  function say(text, lost) {
    if (live.textContent !== text) live.textContent = text;
    document.body.classList.toggle("stale", lost);
  }

  // What was true is not shown as if it still were: the page of a node that does not answer knows nothing. The next frame has all parts.
  function forget() {
    if (document.body.classList.contains("stale")) return;
    say("NOT LIVE: this node does not answer; trying again", true);
    document.getElementById("alerts").replaceChildren(document.getElementById("lost").content.cloneNode(true));
    for (const e of document.querySelectorAll("#head .facts, #commit, #busy, #joining p, #clients td")) e.textContent = "unknown";
    for (const e of document.querySelectorAll("#picture li")) e.textContent = "unknown";
    for (const e of document.querySelectorAll("#outlook li")) if (e.nextElementSibling) e.remove(); else e.textContent = "unknown";
    for (const e of document.querySelectorAll(".now")) e.remove();
    for (const e of document.querySelectorAll("#nodes tbody tr")) e.className = "warn";
    for (const e of document.querySelectorAll("#nodes .state")) { e.className = "state warn"; e.textContent = "? unknown"; }
    for (const e of document.querySelectorAll("#nodes .why")) e.remove();
    for (const e of document.querySelectorAll("#nodes td.n, #nodes td[data-label=Disk], #nodes td[data-label=Role]")) e.textContent = "–";
    for (const e of document.querySelectorAll("#tiles .tile")) {
      e.className = "tile";
      while (e.children.length > 1) e.lastElementChild.remove();
      e.insertAdjacentHTML("beforeend", '<p class="value"><b>?</b> <span class="unit">unknown</span></p>');
    }
  }

  function open() {
    clearTimeout(again);
    if (stream || document.hidden) return;
    stream = new EventSource("/ui/stream");
    heard = Date.now();
    stream.addEventListener("frame", function (e) {
      heard = Date.now();
      const parts = JSON.parse(e.data);
      for (const id of Object.keys(parts)) put(id, parts[id]);
      if (resume) resume.hidden = !document.querySelector("#head [data-paused]");
      say("live", false);
    });
    stream.addEventListener("over", function () { location.assign("/"); });
    stream.onerror = function () {
      forget();
      if (stream.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      close();
      again = setTimeout(open, 5000);
    };
  }

  function close() {
    if (stream) stream.close();
    stream = null;
  }

  // A host that is lost ends no connection. A new one brings all parts.
  setInterval(function () {
    if (!stream || Date.now() - heard < patience) return;
    forget();
    close();
    open();
  }, 1000);

  document.addEventListener("visibilitychange", function () {
    if (document.hidden) close(); else open();
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
})();
