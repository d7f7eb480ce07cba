
(function () {
  var all = document.querySelectorAll("svg.flame");
  var svg = all[all.length - 1];
  if (!svg) return;
  var part = function (name) { return svg.querySelector("." + name); };
  var reset = part("reset"), search = part("search"), detail = part("detail");
  var groups = Array.prototype.slice.call(part("frames").querySelectorAll("g"));
  var frames = groups.map(function (g) {
    var rect = g.querySelector("rect"), text = g.querySelector("text"), title = g.querySelector("title").textContent;
    return {
      g: g, rect: rect, text: text, title: title, name: title.replace(/ \([^(]*\)$/, ""),
      x: +rect.getAttribute("x"), y: +rect.getAttribute("y"), w: +rect.getAttribute("width"), fill: rect.getAttribute("fill")
    };
  });
  var side = 10, full = 1180;
  function label(f, w) {
    var name = f.name, room = Math.floor((w - 6) / 6.4);
    f.text.textContent = name.length <= room ? name : room < 3 ? "" : name.slice(0, room - 2) + "..";
  }
  function zoom(to) {
    var scale = full / to.w;
    frames.forEach(function (f) {
      var above = f.y < to.y - 1, holds = f.x <= to.x + 0.06 && f.x + f.w >= to.x + to.w - 0.06;
      var inside = f.x >= to.x - 0.06 && f.x + f.w <= to.x + to.w + 0.06;
      var shown = above ? holds : inside;
      f.g.style.display = shown ? "" : "none";
      if (!shown) return;
      var x = above ? side : side + (f.x - to.x) * scale, w = above ? full : f.w * scale;
      f.rect.setAttribute("x", x);
      f.rect.setAttribute("width", w);
      f.g.style.opacity = above ? 0.5 : 1;
      f.text.setAttribute("x", x + 3);
      label(f, w);
    });
    reset.textContent = to === root ? "" : "Reset zoom";
  }
  function find(word) {
    var matched = 0, spans = [];
    frames.forEach(function (f) {
      var hit = word && f.name.toLowerCase().indexOf(word.toLowerCase()) >= 0;
      f.rect.setAttribute("fill", hit ? "#e600e6" : f.fill);
      if (hit) spans.push([f.x, f.x + f.w]);
    });
    spans.sort(function (a, b) { return a[0] - b[0]; });
    var end = 0;
    spans.forEach(function (s) {
      if (s[1] > end) { matched += s[1] - Math.max(s[0], end); end = s[1]; }
    });
    search.textContent = word ? word + ": " + (matched * 100 / full).toFixed(1) + "% (clear)" : "Search";
  }
  var root = frames.reduce(function (a, b) { return b.y < a.y ? b : a; }, frames[0]);
  var word = "";
  function ask() {
    word = word ? "" : window.prompt("Part of a frame's name", "") || "";
    find(word);
  }
  frames.forEach(function (f) {
    f.g.style.cursor = "pointer";
    f.g.addEventListener("click", function () { zoom(f); });
    f.g.addEventListener("mouseover", function () { detail.textContent = f.title; });
    f.g.addEventListener("mouseout", function () { detail.textContent = ""; });
  });
  reset.addEventListener("click", function () { zoom(root); });
  search.addEventListener("click", ask);
  window.addEventListener("keydown", function (e) {
    if ((e.ctrlKey || e.metaKey) && e.key === "f") { e.preventDefault(); word = ""; ask(); }
    if (e.key === "Escape") { zoom(root); word = ""; find(""); }
  });
  find("");
})();
