// Does what a job asks of a model in a page's folder and prints what came of it, as JSON.
const [folder] = Deno.args;
const { load } = await import(`file://${folder}/ztorch.js`);
const job = JSON.parse(Deno.readTextFileSync(`${folder}/job.json`));
const plain = (x) => ArrayBuffer.isView(x) ? [...x].map((v) => Number.isFinite(v) ? v : String(v))
  : Array.isArray(x) ? x.map(plain) : x && typeof x === "object" ? Object.fromEntries(Object.entries(x).map(([k, v]) => [k, plain(v)])) : x;
let model, made;
const found = [];
try {
  model = await load(Deno.readFileSync(`${folder}/${job.artifact}`), { on: job.on ?? undefined });
  made = { on: model.runsOn, inputs: model.inputs, outputs: model.outputs, trains: model.trains, weights: model.weightNames };
} catch (error) { found.push({ error: error.message }); }
for (const [verb, ...args] of model ? job.calls : []) {
  try {
    found.push(plain(await model[verb](...args)));
  } catch (error) {
    found.push({ error: error.message });
  }
}
if (model && job.together) {
  const all = await Promise.all(job.together.map((x) => model.predict(x)));
  found.push(...all.map(plain));
}
model?.close();
console.log(JSON.stringify({ made, found }));
