// Joins the run and says in the page what came of it. Arms are shown whether measured or not.
export async function take(options = {}) {
  // Answers leave at the end of the window: when one is given tells how it went.
  const { server, run, window } = await (await fetch("run.json")).json();
  const { join } = await import(`${server}/wallflower.js`);
  const seat = await join({ server, run, window, ...options });
  const arm = seat.arm?.name ?? "short-form";
  document.documentElement.dataset.arm = arm;
  document.getElementById("note").textContent = seat.measured
    ? `You count in this test. This browser has spent ε = ${seat.spent} so far.`
    : `You see the page as everybody does; nothing is measured (${seat.reason}).`;
  return { arm, seat };
}

export function finish(text) {
  document.getElementById("form").hidden = true;
  const done = document.getElementById("done");
  done.textContent = text;
  done.hidden = false;
}
