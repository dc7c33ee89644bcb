"use strict";
// Steps: a range and two buttons choose the frame that is shown.
for (const figure of document.querySelectorAll(".steps")) {
  const frames = [...figure.querySelectorAll(".frame")];
  const range = figure.querySelector("input");
  const show = (index) => {
    range.value = Math.min(frames.length, Math.max(1, index));
    frames.forEach((frame, i) => frame.classList.toggle("shown", i === range.value - 1));
    range.setAttribute("aria-valuetext", frames[range.value - 1].querySelector("p").textContent);
  };
  range.addEventListener("input", () => show(Number(range.value)));
  for (const button of figure.querySelectorAll("button"))
    button.addEventListener("click", () => show(Number(range.value) + Number(button.dataset.by)));
  show(Number(range.value));
}
// Tables of many rows are sorted by a click on a heading; dashes go last.
const number = (text) => Number.parseFloat(text.replaceAll(",", "").replace("−", "-"));
for (const table of document.querySelectorAll("table.many")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      const words = head.classList.contains("text");
      const compare = (a, b) => {
        const [x, y] = [a, b].map((row) => row.cells[column].textContent);
        if (words) return sign * x.localeCompare(y, "en", { numeric: true });
        const [p, q] = [number(x), number(y)];
        return Number.isNaN(p) || Number.isNaN(q) ? Number.isNaN(p) - Number.isNaN(q) : sign * (p - q);
      };
      body.append(...[...body.rows].sort(compare));
    });
  });
}
