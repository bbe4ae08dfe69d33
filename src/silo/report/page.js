// Sorts a table of trials by the column whose head is clicked; empty cells stay last.
document.querySelectorAll(".trials th").forEach((head) => head.addEventListener("click", () => {
  const table = head.closest("table"), body = table.tBodies[0], place = [...head.parentNode.children].indexOf(head);
  const down = head.getAttribute("aria-sort") === "ascending";
  table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => { const cell = row.children[place]; return cell.dataset.sort ?? cell.textContent; };
  const rows = [...body.rows].sort((left, right) => {
    const a = key(left), b = key(right), x = Number(a), y = Number(b);
    if (a === "" || b === "") return (a === "") - (b === "");
    const order = Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
    return down ? -order : order;
  });
  body.append(...rows);
}));
