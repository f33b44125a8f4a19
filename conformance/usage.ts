// A client in TypeScript over the types that openapi-typescript makes of the document (api.ts), as a user would write one.
// It is compiled under --strict and then run: node usage.js BASE_URL KEY.
import type { components, paths } from "./api";

type Schemas = components["schemas"];
type Chat = paths["/v1/chat/completions"]["post"];
type Request = Chat["requestBody"]["content"]["application/json"];
type Answer = Chat["responses"][200]["content"]["application/json"];
type Refusal = Chat["responses"][400]["content"]["application/json"];
type ModelList = paths["/v1/models"]["get"]["responses"][200]["content"]["application/json"];
type Health = paths["/health"]["get"]["responses"][200]["content"]["application/json"];
type Event = Schemas["ChatCompletionChunk"] | Schemas["ErrorResponse"];

declare const process: { argv: string[]; exitCode: number };
const [, , baseUrl = "", key = ""] = process.argv;

async function send(path: keyof paths, body?: Request | Schemas["CompletionRequest"]): Promise<Response> {
  return fetch(baseUrl + path, {
    method: body === undefined ? "GET" : "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
    body: body === undefined ? null : JSON.stringify(body),
  });
}

function check(holds: boolean, law: string): void {
  if (!holds) throw new Error(law);
}

async function* events(request: Request): AsyncGenerator<Event> {
  const text = await (await send("/v1/chat/completions", { ...request, stream: true })).text();
  for (const event of text.split("\n\n")) {
    if (event.startsWith("data: ") && event !== "data: [DONE]") yield JSON.parse(event.slice(6)) as Event;
  }
}

const request: Request = {
  messages: [
    { role: "system", content: "Be brief." },
    { role: "user", content: [{ type: "text", text: "What is the weather in Lagos?" }] },
    {
      role: "assistant",
      content: null,
      tool_calls: [{ id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"city": "Lagos"}' } }],
    },
    { role: "tool", tool_call_id: "call_1", content: '{"temperature": 31}' },
  ],
  tools: [{ type: "function", function: { name: "get_weather", parameters: { type: "object" } } }],
  tool_choice: { type: "function", function: { name: "get_weather" } },
  temperature: 0,
  max_tokens: 16,
  stop: ["\n\n\n"],
  chat_template_kwargs: { enable_thinking: false, another_switch: 1 },
};

// What the document refuses is no value of its types.
// @ts-expect-error: no such role
const noRole: Request = { messages: [{ role: "nobody", content: "Hi" }] };
// @ts-expect-error: images are refused
const image: Request = { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "x" } }] }] };
// @ts-expect-error: messages are required
const nothing: Request = { model: "maple-preview" };
// @ts-expect-error: json_schema is refused
const format: Request = { messages: [], response_format: { type: "json_schema" } };

async function main(): Promise<void> {
  const health = (await (await send("/health")).json()) as Health;
  check(health.status === "ok", "the server is ready");
  const models = (await (await send("/v1/models")).json()) as ModelList;
  check(models.data[0]?.id === health.model, "the one model is listed");

  const answer = (await (await send("/v1/chat/completions", request)).json()) as Answer;
  const message = answer.choices[0]?.message;
  check(answer.usage.completion_tokens <= 16, "the cap is kept");
  let content = "";
  let role: "assistant" | undefined;
  for await (const event of events(request)) {
    if ("error" in event) throw new Error(event.error.message);
    const delta = event.choices[0]?.delta;
    role ??= delta?.role;
    content += delta?.content ?? "";
  }
  check(role === "assistant" && content === (message?.content ?? ""), "the stream says what the whole answer says");

  const raw = await send("/v1/completions", { prompt: [72, 105], max_tokens: 1 });
  check(((await raw.json()) as Schemas["Completion"]).choices[0]?.finish_reason !== undefined, "a raw prompt is continued");

  const refused = await send("/v1/chat/completions", { ...request, n: 2 });
  const refusal = (await refused.json()) as Refusal;
  check(refused.status === 400 && refusal.error.param === "n" && refusal.error.code === null, "n is refused by name");
}

main().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});
