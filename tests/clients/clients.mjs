// clients.mjs URL scripted|shipped NAME.. - clients, as people have them, against a server whose model
// says what test_clients.py's script tells it to, or is the one that is shipped. Ends with 0 if all
// they were told is as it should be.
import assert from "node:assert/strict";
import { z } from "zod";

const [url, model_is, ...names] = process.argv.slice(2);
// The shipped one says what it likes, and its template reads no tools.
const scripted = model_is === "scripted";
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tool = { type: "function", function: { name: "get_weather", description: "the weather", parameters } };
const ask = "How is the weather?";

// A form with what zod's schemas have: every part has an end, so that a model that would rather
// talk ends, too. What the script says to "Tell the event." is `told` in this form.
const Event = z.object({
  title: z.string().min(1).max(12).describe("of the event"),
  kind: z.enum(["talk", "walk"]),
  seats: z.number().int().positive().max(500),
  price: z.number().min(0).lt(90).multipleOf(0.5),
  room: z.string().max(9).nullable(),
  tags: z.array(z.string().regex(/^[a-z]{1,5}$/)).max(2),
  day: z.iso.date(),
  key: z.nanoid(),
  level: z.number().int().min(0).max(9).default(3),
  by: z.discriminatedUnion("is", [
    z.object({ is: z.literal("person"), age: z.int().min(0).max(150) }),
    z.object({ is: z.literal("club"), open: z.boolean() })]),
}).meta({ title: "Event", description: "an event" });
const told = { title: "Zoo", kind: "walk", seats: 20, price: 2.5, room: null, tags: ["a", "b"],
               day: "2026-02-28", key: "abcdefghijklmnopqrstu", level: 4, by: { is: "club", open: true } };
const says = ["Tell the event.", "I would rather talk."]; // and so would the model
const fits = (value, said) => {
  assert.deepEqual(Event.strict().parse(value), value);
  if (scripted && said === says[0]) assert.deepEqual(value, told);
};

async function openai() {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: url + "/v1", apiKey: "x", maxRetries: 0 });
  const model = "m";
  assert.equal((await client.models.list()).data[0].object, "model");

  const plain = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "hi" }], logprobs: true, top_logprobs: 2 });
  assert.equal(plain.choices[0].message.content, "Hello there");
  assert.equal(plain.choices[0].logprobs.content[0].top_logprobs.length, 2);

  for (const content of ["HelloXX", [{ type: "text", text: "Hello" }, { type: "text", text: "XX" }]]) {
    const foretold = await client.chat.completions.create({
      model, messages: [{ role: "user", content: "hi" }], prediction: { type: "content", content } });
    assert.equal(foretold.choices[0].message.content, "Hello there"); // as without, and a token is a byte:
    const { accepted_prediction_tokens, rejected_prediction_tokens } = foretold.usage.completion_tokens_details;
    assert.deepEqual([accepted_prediction_tokens, rejected_prediction_tokens], [5, 2]);
  }
  await assert.rejects(
    client.chat.completions.create({ model, messages: [{ role: "user", content: "hi" }],
                                     prediction: { type: "content", content: "a".repeat(40000) } }),
    (e) => e instanceof OpenAI.BadRequestError && e.param === "prediction" && /prediction has more than/.test(e.message));

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

async function openai_forms() {
  const { default: OpenAI } = await import("openai");
  const { zodResponseFormat, zodTextFormat, zodFunction, zodResponsesFunction } =
    await import("openai/helpers/zod");
  const client = new OpenAI({ baseURL: url + "/v1", apiKey: "x", maxRetries: 0 });
  const model = "m";
  for (const content of says) {
    const messages = [{ role: "user", content }];
    const form = { model, messages, response_format: zodResponseFormat(Event, "event") };
    fits((await client.chat.completions.parse(form)).choices[0].message.parsed, content);
    fits((await client.chat.completions.stream(form).finalChatCompletion()).choices[0].message.parsed, content);
    const text = { format: zodTextFormat(Event, "event") };
    fits((await client.responses.parse({ model, input: content, text })).output_parsed, content);
    fits((await client.responses.stream({ model, input: content, text }).finalResponse()).output_parsed, content);
    if (!scripted) continue;

    const strict = zodFunction({ name: "book", parameters: Event });
    assert.equal(strict.function.strict, true);
    const choice = { type: "function", function: { name: "book" } };
    const called = await client.chat.completions.parse({
      model, messages, tools: [strict], tool_choice: choice, parallel_tool_calls: false });
    fits(called.choices[0].message.tool_calls[0].function.parsed_arguments, content);
    const item = await client.responses.parse({
      model, input: content, tool_choice: "required", parallel_tool_calls: false,
      tools: [zodResponsesFunction({ name: "book", parameters: Event })] });
    fits(item.output.find((one) => one.type === "function_call").parsed_arguments, content);
  }
  if (!scripted) return;
  // Nobody forces these calls: the model makes them, with arguments of its own where it may.
  for (const content of ["Book the event.", "Book nonsense."]) {
    const asked = [];
    const runner = client.chat.completions.runTools({
      model, messages: [{ role: "user", content }], parallel_tool_calls: false,
      tools: [zodFunction({ name: "book", parameters: Event,
                            function: (input) => { asked.push(input); return "RESULT"; } })] });
    assert.equal(await runner.finalContent(), "It is sunny.");
    assert.equal(asked.length, 1);
    fits(asked[0], content === "Book the event." ? says[0] : content);
  }
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

// Both providers: chat completions, and OpenAI's own, which speaks Responses unless it is told not to.
async function ai() {
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const { createOpenAI } = await import("@ai-sdk/openai");
  const openai = createOpenAI({ baseURL: url + "/v1", apiKey: "none" });
  for (const model of [createOpenAICompatible({ name: "radish", baseURL: url + "/v1" })("m"), openai("m"),
    openai.chat("m")]) await ai_with(model);
}

async function ai_with(model) {
  const { generateText, streamText, tool: define, stepCountIs } = await import("ai");
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

async function ai_forms() {
  const { generateObject, streamObject, generateText, Output, tool: define } = await import("ai");
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const model = createOpenAICompatible({
    name: "radish", baseURL: url + "/v1", supportsStructuredOutputs: true })("m");
  for (const prompt of says) {
    fits((await generateObject({ model, prompt, schema: Event })).object, prompt);
    fits((await generateText({ model, prompt, output: Output.object({ schema: Event }) })).output, prompt);
    const streamed = streamObject({ model, prompt, schema: Event });
    let pieces = 0;
    for await (const part of streamed.partialObjectStream) pieces += part !== undefined;
    assert.ok(pieces > 0);
    fits(await streamed.object, prompt);
    const one = (await generateObject({ model, prompt, output: "enum", enum: ["red", "blue"] })).object;
    assert.ok(["red", "blue"].includes(one));
    if (!scripted) continue;
    const called = await generateText({
      model, prompt, toolChoice: { type: "tool", toolName: "book" },
      tools: { book: define({ inputSchema: Event, strict: true }) } });
    fits(called.toolCalls[0].input, prompt);
  }
  // As it is without that word: any JSON object, and the schema is the client's to check.
  const plain = createOpenAICompatible({ name: "radish", baseURL: url + "/v1" })("m");
  if (scripted) fits((await generateObject({ model: plain, prompt: says[0], schema: Event })).object, says[0]);
}

async function langchain_forms() {
  const { ChatOpenAI } = await import("@langchain/openai");
  const model = new ChatOpenAI({ model: "m", apiKey: "x", maxRetries: 0,
                                 configuration: { baseURL: url + "/v1" } });
  for (const said of says) {
    fits(await model.withStructuredOutput(Event, { name: "event", method: "jsonSchema" }).invoke(said), said);
    fits(await model.withStructuredOutput(Event, { method: "jsonSchema", strict: true }).invoke(said), said);
    fits(await model.withStructuredOutput(z.toJSONSchema(Event), { name: "event" }).invoke(said), said);
    if (!scripted) continue;
    for (const strict of [undefined, true])
      fits(await model.withStructuredOutput(Event, { name: "book", method: "functionCalling", strict })
        .invoke(said), said);
  }
  if (scripted) fits(await model.withStructuredOutput(Event, { method: "jsonMode" }).invoke(says[0]), says[0]);
}

async function anthropic_forms() {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const { zodOutputFormat } = await import("@anthropic-ai/sdk/helpers/zod");
  const client = new Anthropic({ baseURL: url, apiKey: "x", maxRetries: 0 });
  // This client leaves lengths and patterns out of what it sends, and then looks for them.
  const Short = z.object({ kind: z.enum(["talk", "walk"]), open: z.boolean(), room: z.literal("A").nullable() });
  for (const content of says) {
    const body = { model: "m", max_tokens: 300, messages: [{ role: "user", content }] };
    const output_config = { format: zodOutputFormat(Short) };
    Short.parse((await client.messages.parse({ ...body, output_config })).parsed_output);
    if (!scripted) continue;
    const strict = { name: "book", strict: true, input_schema: z.toJSONSchema(Event) };
    const called = await client.messages.create({
      ...body, max_tokens: 1000, tools: [strict], tool_choice: { type: "tool", name: "book" } });
    fits(called.content.find((block) => block.type === "tool_use").input, content);
  }
}

async function ollama_forms() {
  const { Ollama } = await import("ollama");
  const client = new Ollama({ host: url });
  for (const content of says) {
    const format = z.toJSONSchema(Event);
    const answer = await client.chat({ model: "m", messages: [{ role: "user", content }], format });
    fits(JSON.parse(answer.message.content), content);
    fits(JSON.parse((await client.generate({ model: "m", prompt: content, format })).response), content);
  }
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

const clients = { openai, openai_forms, anthropic, anthropic_forms, ai, ai_forms, langchain, langchain_forms,
                  ollama, ollama_forms };
if (scripted) for (const name of names) await clients[name]();
else await Promise.all(names.map((name) => clients[name]())); // beside each other
