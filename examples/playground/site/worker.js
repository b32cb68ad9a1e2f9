"use strict";

// The engine runs here, so that a long picture does not stop the page.
importScripts("wasm_exec.js");

const ready = load();
ready.then(() => postMessage({ready: true}), error => postMessage({error: String(error)}));

// load starts the engine. The file is compressed here and not by the server, so that each
// server sends as little; one that unpacks it on the way is fine, too.
async function load() {
  const response = await fetch("engine.wasm.gz");
  if (!response.ok) throw new Error(`engine.wasm.gz: ${response.status} ${response.statusText}`);
  let bytes = await response.arrayBuffer();
  const head = new Uint8Array(bytes, 0, 2);
  if (head[0] === 0x1f && head[1] === 0x8b) {
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    bytes = await new Response(unpacked).arrayBuffer();
  }
  const go = new Go();
  const {instance} = await WebAssembly.instantiate(bytes, go.importObject);
  go.run(instance).then(() => postMessage({error: "the engine has ended"}));
}

onmessage = async ({data}) => {
  await ready;
  const began = performance.now();
  const picture = JSON.parse(sluicePlay(data.story, data.values));
  postMessage({id: data.id, picture, took: performance.now() - began});
};
