// The JavaScript SDK beyond plain messages. In: `{url, model}` and the folder of node_modules as arguments.
// Out: `{parsed, counted, models, answer}`, where the answer is that of the tool runner.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [task, folder] = [JSON.parse(process.argv[2]), process.argv[3]];
const require = createRequire(`${folder}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { default: Anthropic } = await load("@anthropic-ai/sdk");
const { jsonSchemaOutputFormat } = await load("@anthropic-ai/sdk/helpers/json-schema");
const { betaTool } = await load("@anthropic-ai/sdk/helpers/beta/json-schema");

const client = new Anthropic({ baseURL: task.url, apiKey: "sk-client", maxRetries: 0, timeout: 10_000 });
const shape = (properties) => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});
const question = { model: task.model, messages: [{ role: "user", content: "Weather in Paris?" }] };
const weather = shape({ city: { type: "string" }, degrees: { type: "integer" } });
const parsed = await client.messages.parse({
  ...question,
  max_tokens: 100,
  output_config: { format: jsonSchemaOutputFormat(weather) },
});
const { input_tokens: counted } = await client.messages.countTokens(question);
const models = [];
for await (const model of client.models.list()) models.push(model.id);
const tool = betaTool({
  name: "weather",
  description: "The weather of a city",
  inputSchema: shape({ city: { type: "string" } }),
  run: ({ city }) => `${city.length} degrees`,
});
const answer = await client.beta.messages.toolRunner({ ...question, max_tokens: 100, tools: [tool] });
process.stdout.write(JSON.stringify({ parsed: parsed.parsed_output, counted, models, answer: answer.content }));
