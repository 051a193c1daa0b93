import { finish, take } from "./seat.js";

const { arm, seat } = await take({ ifUnknown: 0.5 });
const advice = { "short-form": "Read a book before bed.", "long-form": "Take a walk before bed, then read." };
document.getElementById("advice").textContent = advice[arm];
const form = document.getElementById("form");
form.hidden = false;
form.addEventListener("submit", (event) => {
  event.preventDefault();
  void seat.answer(Number(new FormData(form).get("sleep")));
  finish("Thank you.");
});
