// clients.mjs URL NAME - one client, as people have it, against a server whose model says what
// test_clients.py's script tells it to. Ends with 0 if all it was told is as it should be.
import assert from "node:assert/strict";

const [url, name] = process.argv.slice(2);
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tool = { type: "function", function: { name: "get_weather", description: "the weather", parameters } };
const ask = "How is the weather?";

async function openai() {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: url + "/v1", apiKey: "x", maxRetries: 0 });
  const model = "m";
  assert.equal((await client.models.list()).data[0].object, "model");

  const plain = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "hi" }], logprobs: true, top_logprobs: 2 });
  assert.equal(plain.choices[0].message.content, "Hello there");
  assert.equal(plain.choices[0].logprobs.content[0].top_logprobs.length, 2);

  const messages = [{ role: "user", content: ask }];
  const stream = client.chat.completions.stream({
    model, messages, tools: [tool], stream_options: { include_usage: true } });
  const called = (await stream.finalChatCompletion()).choices[0];
  assert.equal(called.finish_reason, "tool_calls");
  assert.deepEqual(JSON.parse(called.message.tool_calls[0].function.arguments), { city: "Paris" });
  messages.push(called.message,
                { role: "tool", tool_call_id: called.message.tool_calls[0].id, content: "RESULT" });
  const told = await client.chat.completions.create({ model, messages, tools: [tool] });
  assert.equal(told.choices[0].message.content, "It is sunny.");
  assert.ok(told.usage.prompt_tokens_details.cached_tokens > 100);

  await assert.rejects(
    client.chat.completions.create({ model, messages: [{ role: "user", content: "a".repeat(40000) }] }),
    (e) => e instanceof OpenAI.BadRequestError && e.code === "context_length_exceeded");

  const input = ["ab", "b"]; // the double's hidden states are the bits of each token
  for (const encoding_format of [undefined, "float", "base64"]) {
    const found = await client.embeddings.create({ model, input, encoding_format });
    assert.deepEqual(found.data.map((d) => d.index), [0, 1]);
    assert.equal(found.usage.total_tokens, 3);
    const numbers = found.data.map((d) => encoding_format !== "base64" ? d.embedding :
      [...new Float32Array(new Uint8Array(Buffer.from(d.embedding, "base64")).buffer)]);
    const third = Math.fround(1 / Math.sqrt(3));
    assert.deepEqual(numbers[1].map(Math.fround), [0, third, 0, 0, 0, third, third, 0]);
  }

  const endless = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "endless" }], stream: true });
  for await (const chunk of endless) { assert.ok(chunk.id); break; } // leaves: the request is aborted

  const first = await client.responses.create({ model, input: "hi" });
  assert.equal(first.output_text, "Hello there");
  const flat = { type: "function", name: "get_weather", parameters, strict: false };
  const items = client.responses.stream({
    model, input: ask, tools: [flat], previous_response_id: first.id });
  let pieces = "";
  items.on("response.function_call_arguments.delta", (event) => { pieces += event.delta; });
  const answer = await items.finalResponse();
  const call = answer.output.find((item) => item.type === "function_call");
  assert.equal(pieces, call.arguments);
  const last = await client.responses.create({
    model, tools: [flat], previous_response_id: answer.id,
    input: [{ type: "function_call_output", call_id: call.call_id, output: "RESULT" }] });
  assert.equal(last.output_text, "It is sunny.");
  assert.equal((await client.responses.retrieve(last.id)).id, last.id);
  await client.responses.delete(last.id);
}

async function anthropic() {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const client = new Anthropic({ baseURL: url, apiKey: "x", maxRetries: 0 });
  const tools = [{ name: "get_weather", description: "the weather", input_schema: parameters,
                   cache_control: { type: "ephemeral" } }];
  const base = { model: "m", max_tokens: 300 };
  const plain = await client.messages.create({ ...base, messages: [{ role: "user", content: "hi" }] });
  assert.equal(plain.content[0].text, "Hello there");
  const counted = await client.messages.countTokens({
    model: "m", messages: [{ role: "user", content: "hi" }] });
  assert.equal(counted.input_tokens, plain.usage.input_tokens + plain.usage.cache_read_input_tokens);

  const messages = [{ role: "user", content: ask }];
  const stream = client.messages.stream({ ...base, messages, tools });
  let text = "";
  stream.on("text", (piece) => { text += piece; });
  const called = await stream.finalMessage();
  assert.equal(text, "Let me look.");
  assert.equal(called.stop_reason, "tool_use");
  assert.deepEqual(called.content[1].input, { city: "Paris" });
  messages.push({ role: "assistant", content: called.content },
                { role: "user", content: [
                  { type: "tool_result", tool_use_id: called.content[1].id, content: "RESULT" }] });
  const told = await client.messages.create({ ...base, messages, tools });
  assert.equal(told.content[0].text, "It is sunny.");
  assert.ok(told.usage.cache_read_input_tokens > 100);
  await assert.rejects(
    client.messages.create({ ...base, messages: [{ role: "user", content: "a".repeat(40000) }] }),
    (e) => e instanceof Anthropic.BadRequestError && /prompt is too long: \d+ tokens > \d+ maximum/.test(e.message));
}

async function ai() {
  const { generateText, streamText, tool: define, stepCountIs } = await import("ai");
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const { z } = await import("zod");
  const model = createOpenAICompatible({ name: "radish", baseURL: url + "/v1" })("m");
  const streamed = streamText({ model, prompt: "hi" });
  let text = "";
  for await (const piece of streamed.textStream) text += piece;
  assert.equal(text, "Hello there");
  const asked = [];
  const told = await generateText({
    model, prompt: ask, stopWhen: stepCountIs(3), tools: { get_weather: define({
      description: "the weather", inputSchema: z.object({ city: z.string() }),
      execute: async (input) => { asked.push(input); return "RESULT"; } }) } });
  assert.deepEqual(asked, [{ city: "Paris" }]);
  assert.equal(told.text, "It is sunny.");
}

async function langchain() {
  const { ChatOpenAI } = await import("@langchain/openai");
  const model = new ChatOpenAI({ model: "m", apiKey: "x", maxRetries: 0,
                                 configuration: { baseURL: url + "/v1" } });
  const both = await model.batch(["hi", "hi again"]);
  assert.deepEqual(both.map((m) => m.content), ["Hello there", "Hello there"]);
  const called = await model.bindTools([tool]).invoke(ask);
  assert.deepEqual(called.tool_calls.map(({ name, args }) => [name, args]),
                   [["get_weather", { city: "Paris" }]]);
}

async function ollama() {
  const { Ollama } = await import("ollama");
  const client = new Ollama({ host: url });
  const model = "m";
  assert.ok((await client.list()).models.length);
  assert.ok((await client.show({ model })).capabilities.includes("tools"));
  let text = "";
  for await (const part of await client.chat({
    model, messages: [{ role: "user", content: "hi" }], stream: true })) text += part.message.content;
  assert.equal(text, "Hello there");
  const messages = [{ role: "user", content: ask }];
  const called = (await client.chat({ model, messages, tools: [tool] })).message;
  assert.deepEqual(called.tool_calls[0].function.arguments, { city: "Paris" });
  messages.push(called, { role: "tool", tool_name: "get_weather", content: "RESULT" });
  assert.equal((await client.chat({ model, messages, tools: [tool] })).message.content, "It is sunny.");
  assert.equal((await client.generate({ model, prompt: "hi" })).response, "Hello there");
  assert.equal((await client.embed({ model, input: ["ab", "b"] })).embeddings[1].length, 8);
  assert.equal((await client.embeddings({ model, prompt: "b" })).embedding.length, 8);
}

await { openai, anthropic, ai, langchain, ollama }[name]();
