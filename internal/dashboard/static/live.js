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
  const live = document.getElementById("live");
  let stream = null;
  let again = 0;

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

  function open() {
    clearTimeout(again);
    if (stream || document.hidden) return;
    stream = new EventSource("/ui/stream");
    stream.addEventListener("frame", function (e) {
      const parts = JSON.parse(e.data);
      for (const id of Object.keys(parts)) put(id, parts[id]);
      say("live", false);
    });
    stream.addEventListener("over", function () { location.assign("/"); });
    stream.onerror = function () {
      say("NOT LIVE: this node does not answer; trying again", true);
      if (stream.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      close();
      again = setTimeout(open, 5000);
    };
  }

  function close() {
    if (stream) stream.close();
    stream = null;
  }

  document.addEventListener("visibilitychange", function () {
    if (document.hidden) close(); else open();
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
})();
