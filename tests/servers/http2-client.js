// A client of HTTP/2 (`node -e SCRIPT PORT CONNECTIONS EXCHANGES RATE`): on each connection so many exchanges at a time, each followed by another one
// as soon as it is answered, or, with a rate, as many a second as that at random moments on a random connection.
const [port, connections, exchanges, rate] = process.argv.slice(1).map(Number);
const sessions = [];
function ask(session, then) {
  const stream = session.request({ ':path': '/' });
  stream.on('error', () => {});
  stream.on('end', then);
  stream.resume();
  stream.end();
}
for (let n = 0; n < connections; n++) {
  const session = require('http2').connect('http://127.0.0.1:' + port);
  session.on('error', () => {});
  sessions.push(session);
  const again = () => ask(session, again);
  for (let i = 0; i < exchanges; i++) again();
}
if (rate) {
  let next = performance.now();
  setInterval(() => {
    for (; next <= performance.now(); next -= 1000 / rate * Math.log(1 - Math.random())) {
      ask(sessions[Math.floor(Math.random() * connections)], () => {});
    }
  }, 1);
}
