// Runs cases through the JavaScript SDK: the same JSON on stdin and stdout as runner.py.
// The first argument is the folder that holds node_modules.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const AT_ONCE = 8;

const folder = resolve(process.argv[2]);
const require = createRequire(pathToFileURL(join(folder, "package.json")));
const { Anthropic } = require("@anthropic-ai/sdk");
const { version } = JSON.parse(readFileSync(join(folder, "node_modules/@anthropic-ai/sdk/package.json"), "utf8"));

const task = JSON.parse(readFileSync(0, "utf8"));
// Retries would hide a failure behind another try.
const client = new Anthropic({
  baseURL: task.base_url,
  apiKey: "sk-client",
  maxRetries: 0,
  timeout: task.timeout * 1000,
});

const ways = {
  async helper(request, result) {
    const stream = client.messages.stream(request);
    stream.on("streamEvent", (event) => result.events.push({ type: event.type }));
    result.message = await stream.finalMessage();
  },
  async events(request, result) {
    for await (const event of await client.messages.create({ ...request, stream: true })) {
      result.events.push(event);
    }
  },
  async whole(request, result) {
    result.message = await client.messages.create(request);
  },
};

async function attempt(way, request) {
  const result = { message: null, events: [], error: null };
  try {
    await ways[way](request, result);
  } catch (error) {
    result.error = { class: error.constructor.name, message: error.message, status: error.status ?? null };
  }
  return result;
}

const results = {};
const waiting = Object.entries(task.cases);
async function work() {
  for (let next = waiting.shift(); next; next = waiting.shift()) {
    const [name, request] = next;
    results[name] = {};
    for (const way of Object.keys(ways)) results[name][way] = await attempt(way, request);
  }
}
await Promise.all(Array.from({ length: AT_ONCE }, work));
process.stdout.write(JSON.stringify({ version, results }));
