"use strict";
// Shows single layers and heads, and what a chosen word reads. The weights stand in the page; nothing is loaded.
for (const section of document.querySelectorAll("section[data-layers]")) {
  const layers = +section.dataset.layers, heads = +section.dataset.heads;
  const maps = JSON.parse(section.querySelector('script[type="application/json"]').textContent).map((map) => {
    const bytes = Uint8Array.from(atob(map.weights), (c) => c.charCodeAt(0));
    return { readers: map.readers, weights: Float32Array.from(bytes, (b) => (b / 255) ** 2) };
  });
  const form = section.querySelector("form"), said = section.querySelector(".means");
  let chosen = -1; // the word whose row is shown; -1: the mean over all

  const mean = (map) => {
    const layer = +form.elements.layer.value, head = +form.elements.head.value;
    const size = map.weights.length / layers / heads, sum = new Float32Array(size);
    let count = 0;
    for (let l = 0; l < layers; l++)
      for (let h = 0; h < heads; h++) {
        if ((layer >= 0 && l !== layer) || (head >= 0 && h !== head)) continue;
        count++;
        for (let i = 0, start = (l * heads + h) * size; i < size; i++) sum[i] += map.weights[start + i];
      }
    return sum.map((weight) => weight / count);
  };
  const shade = (element, weight) => {
    element.style.setProperty("--a", Math.sqrt(weight).toFixed(2));
    element.classList.toggle("mid", weight >= 0.33);
    element.classList.toggle("high", weight >= 0.56);
    (element.querySelector("small") ?? element).textContent = Math.round(100 * weight);
  };
  const read = (weights, readers) => {
    const columns = weights.length / readers, sum = new Float32Array(columns);
    for (let q = 0; q < readers; q++)
      for (let n = 0; n < columns; n++) sum[n] += (chosen < 0 ? 1 / readers : +(q === chosen)) * weights[q * columns + n];
    return sum;
  };
  const update = () => {
    const shown = maps.map(mean);
    for (const strip of section.querySelectorAll(".strip")) {
      const number = +strip.dataset.map, weights = read(shown[number], maps[number].readers);
      strip.querySelectorAll(".cell").forEach((cell, n) => {
        shade(cell, weights[n]);
        if (strip.classList.contains("text")) cell.setAttribute("aria-pressed", n === chosen);
      });
    }
    for (const table of section.querySelectorAll("table")) {
      table.querySelectorAll("td.w").forEach((cell, i) => shade(cell, shown[+table.dataset.map][i]));
      if (section.querySelector(".text"))
        table.querySelectorAll("tbody tr").forEach((row, q) => row.classList.toggle("chosen", q === chosen));
    }
  };
  for (const cell of section.querySelectorAll(".text .cell")) {
    const choose = () => {
      const n = [...cell.parentNode.querySelectorAll(".cell")].indexOf(cell);
      chosen = n === chosen ? -1 : n;
      update();
    };
    cell.setAttribute("role", "button");
    cell.tabIndex = 0;
    cell.addEventListener("click", choose);
    cell.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); }
      if (event.key === "Escape" && chosen >= 0) { chosen = -1; update(); }
    });
  }
  for (const table of section.querySelectorAll("table")) {
    const names = [...table.querySelectorAll("thead th")].map((head) => head.textContent);
    for (const row of table.tBodies[0].rows)
      row.addEventListener("pointerover", (event) => {
        if (!event.target.matches("td.w")) return;
        const reader = row.querySelector("th").textContent;
        event.target.title = `${reader} reads ${names[event.target.cellIndex - 1]}: ${event.target.textContent} %`;
      });
  }
  form.addEventListener("change", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  said.hidden = true;
  for (const hint of section.querySelectorAll(".hint")) hint.hidden = false;
}
