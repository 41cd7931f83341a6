const login = at("form").getAttribute("action");
const root = login.slice(0, -"login".length);

// The server shows this page at every address, so that the address is still there after the login.
function proceed() {
  // With the origin: a path such as //other.example/ would lead to another site.
  location.replace(location.origin + (location.pathname === login ? root : location.pathname + location.search));
}

at("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const headers = { "Content-Type": "application/json" };
    await fetchJson(login, { method: "POST", headers, body: JSON.stringify({ token: at("token").value }) });
    proceed();
  } catch (error) {
    at("error").textContent = error.message;
    at("error").hidden = false;
  }
});

// A link on another site comes without the cookie of a login (SameSite=Strict). A request of this page has it.
async function proceedIfLoggedIn() {
  const fromHere = document.referrer.startsWith(`${location.origin}/`); // the second time it would not help
  if (!fromHere && (await fetch(`${root}api`, { method: "HEAD" })).ok) proceed();
}

proceedIfLoggedIn();
