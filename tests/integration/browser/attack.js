// Requests that a hostile web page can send. The test runs these functions in pages of several origins. Each function
// returns what the page learned about each request: "failed", "opaque" (the browser hides the response), or status and body.

const TIMEOUT_MS = 5000;

async function send(request, options) {
  const body = request.method === "GET" ? undefined : request.body;
  try {
    const response = await fetch(request.url, {
      method: request.method, body, signal: AbortSignal.timeout(TIMEOUT_MS), ...options,
    });
    return response.type === "opaque" ? "opaque" : `${response.status} ${(await response.text()).slice(0, 300)}`;
  } catch (error) {
    return "failed";
  }
}

// With enctype text/plain, the body is NAME=VALUE. It is JSON if NAME ends within a string.
function submitForm(request) {
  const frame = document.createElement("iframe");
  frame.name = `frame-${Math.random()}`;
  const form = document.createElement("form");
  Object.assign(form, { action: request.url, method: request.method, enctype: "text/plain", target: frame.name });
  const input = document.createElement("input");
  Object.assign(input, { type: "hidden", name: request.body.slice(0, -2), value: request.body.slice(-2) });
  form.append(input);
  return new Promise((resolve) => {
    const finish = () => {
      try {
        const text = frame.contentDocument.body.innerText;
        resolve(frame.contentDocument.URL === "about:blank" ? "failed" : `200 ${text.slice(0, 300)}`);
      } catch (error) {
        resolve("opaque");
      }
    };
    document.body.append(frame, form);
    form.submit();
    frame.onload = finish;
    setTimeout(finish, TIMEOUT_MS);
  });
}

const MANNERS = {
  // The browser sends these to any origin without asking it.
  simple: (request) => send(request, { mode: "no-cors" }),
  // The same requests; the page needs the server's permission to read the response.
  readable: (request) => send(request, {}),
  // The browser first asks a server of another origin for permission to send these headers.
  preflighted: (request) => send(request, {
    headers: {
      "Content-Type": "application/json", "Metadata-Flavor": "Google", "Authorization": "Bearer local-viewer",
    },
  }),
  form: submitForm,
};

window.attack = (requests) => Promise.all(requests.map((request) => MANNERS[request.manner](request)));
