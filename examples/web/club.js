import { finish, take } from "./seat.js";

const { arm, seat } = await take();
const form = document.getElementById("form");
document.getElementById("more").hidden = arm === "short-form";
form.hidden = false;
form.addEventListener("submit", (event) => {
  event.preventDefault();
  void seat.answer(1);
  finish("Welcome to the club.");
});
document.getElementById("later").addEventListener("click", () => {
  void seat.answer(0);
  finish("Maybe another time.");
});
