"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const field = (id) => document.getElementById(id);
  const filters = { table: field("filter-table"), model: field("filter-model"), state: field("filter-state") };
  const sortBy = field("sort-by");

  // The first click on a heading sorts the best first, the second the worst first, the third as printed.
  // Rows without a value stay last, and rows of the same value keep the printed order.

  const valueOf = (row, place, type) => {
    const cell = row.cells[place];
    if (type === "text") return cell.textContent.trim();
    const text = type === "figure" ? cell.dataset[sortBy.value] : cell.dataset.value;
    return text === "" || text === undefined ? NaN : Number(text);
  };

  const order = (type, sign) => (a, b) => {
    if (type === "text") return sign * a.value.localeCompare(b.value, "en", { numeric: true });
    if (Number.isNaN(a.value) || Number.isNaN(b.value)) return Number.isNaN(a.value) - Number.isNaN(b.value);
    return sign * (a.value - b.value);
  };

  const sort = (table, place, direction) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, at) => head.hasAttribute("aria-sort") && head.setAttribute("aria-sort", at === place ? direction : "none"));
    const type = heads[place].querySelector("button").dataset.type;
    const keyed = [...table.tBodies[0].rows].map((row) => ({ row, value: valueOf(row, place, type) }));
    keyed.sort((a, b) => a.row.dataset.place - b.row.dataset.place);
    if (direction !== "none") keyed.sort(order(type, direction === "ascending" ? 1 : -1));
    table.tBodies[0].append(...keyed.map((entry) => entry.row));
  };

  all("table").forEach((table) => {
    [...table.tBodies[0].rows].forEach((row, place) => (row.dataset.place = place));
    all("thead button", table).forEach((button) => {
      const head = button.closest("th");
      const first = button.dataset.first;
      const second = first === "ascending" ? "descending" : "ascending";
      const next = { none: first, [first]: second, [second]: "none" };
      button.addEventListener("click", () => sort(table, head.cellIndex, next[head.getAttribute("aria-sort")]));
    });
  });

  const sortAgain = () =>
    all("table.matrix").forEach((table) => {
      const head = [...table.tHead.rows[0].cells].find((cell) => cell.getAttribute("aria-sort") !== "none");
      if (head) sort(table, head.cellIndex, head.getAttribute("aria-sort"));
    });

  // The filters hide rows, and dim the cells of a row that do not fit.

  const isWanted = ({ state, verdict }) => {
    const wanted = filters.state.value;
    if (wanted === "run") return state === "full" || state === "reduced";
    if (wanted === "outside") return verdict === "better" || verdict === "worse";
    return wanted === "" || wanted === state;
  };
  const isModel = (element) => filters.model.value === "" || element.dataset.model === filters.model.value;

  const filter = () => {
    let shown = 0;
    let total = 0;
    all("section.table").forEach((section) => {
      const isTable = filters.table.value === "" || section.dataset.table === filters.table.value;
      let rows = 0;
      all(".matrix tbody tr", section).forEach((row) => {
        let wanted = 0;
        all("td[data-cell]", row).forEach((cell) => {
          const fits = isTable && isModel(row) && isWanted(cell.dataset);
          cell.classList.toggle("dim", !fits);
          wanted += fits;
          total += 1;
        });
        row.hidden = wanted === 0;
        rows += wanted > 0;
        shown += wanted;
      });
      section.hidden = rows === 0;
      all(".list tbody tr", section).forEach((row) => (row.hidden = !(isModel(row) && isWanted(row.dataset))));
      all(".series", section).forEach((series) => series.classList.toggle("off", !isModel(series)));
    });
    all(".runs tbody tr").forEach((row) => {
      const isTable = filters.table.value === "" || row.dataset.table === filters.table.value;
      row.hidden = !(isTable && isModel(row) && isWanted(row.dataset));
    });
    all(".failure").forEach((entry) => (entry.hidden = !isModel(entry)));
    field("shown").textContent = `${shown} of ${total} cells`;
  };

  Object.values(filters).forEach((select) => select.addEventListener("change", filter));
  sortBy.addEventListener("change", sortAgain);
  // The fields get their first values back after this event.
  document.querySelector(".controls").addEventListener("reset", () => setTimeout(() => (filter(), sortAgain())));
  filter();
})();
