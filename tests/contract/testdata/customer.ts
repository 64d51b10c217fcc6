// What a customer's program does with the TypeScript client, against a real server. It prints a
// line for each thing it asks the test to do or to know, and ends with "done".
import { all, createWaybill, WaybillError, type Schemas } from "./index.js";

declare const process: { env: Record<string, string | undefined>; exitCode: number };

const url = process.env["WAYBILL_URL"] ?? "";
const waybill = createWaybill({ url, key: process.env["WAYBILL_API_KEY"] ?? "" });
const receiver = process.env["RECEIVER"] ?? "";

function check(held: boolean, what: string): asserts held {
  if (!held) {
    throw new Error(`not so: ${what}`);
  }
}

async function eventually<T>(what: string, look: () => Promise<T | undefined>): Promise<T> {
  for (const end = Date.now() + 60_000; Date.now() < end; await new Promise((then) => setTimeout(then, 20))) {
    const found = await look();
    if (found !== undefined) {
      return found;
    }
  }
  throw new Error(`after 60 s: not ${what}`);
}

async function refusal(request: Promise<unknown>): Promise<WaybillError> {
  try {
    await request;
  } catch (error) {
    check(error instanceof WaybillError, `a WaybillError: ${error}`);
    return error;
  }
  throw new Error("it was not refused");
}

const acme = { path: { tenant: "acme" } };
const tenant = await waybill.PUT("/v1/tenants/{tenant}", { params: acme, body: { name: "Acme" } });
check(tenant.data?.state === "active", "the tenant is made");

const endpoint = await waybill.POST("/v1/tenants/{tenant}/endpoints", {
  params: acme,
  body: { url: `${receiver}/fails`, uid: "main", event_types: ["payment.*"], retry: { max_attempts: 1 } },
});
check(endpoint.data?.secret.startsWith("whsec_") === true, "the secret is shown");

const published = await waybill.POST("/v1/tenants/{tenant}/events", {
  params: { ...acme, header: { "Idempotency-Key": "once" } },
  body: { type: "payment.succeeded", payload: { id: "pay_1", amount: 5 } },
});
check(published.data !== undefined, "it is accepted");
const event_id = published.data.id;

// The receiver refuses the first time: a dead letter, with the reason, which is replayed.
const deliveries = (query: { state?: Schemas["DeliveryState"][]; event_id?: string; cursor?: string; limit?: number }) =>
  waybill.GET("/v1/tenants/{tenant}/deliveries", { params: { ...acme, query } });
const dead = await eventually("dead", async () => (await deliveries({ state: ["dead", "cancelled"], event_id })).data?.data[0]);
check(dead.dead?.kind === "http_status" && dead.last_attempt?.status_code === 400, `it is dead for its status: ${JSON.stringify(dead)}`);
await waybill.PATCH("/v1/tenants/{tenant}/endpoints/{ep}", { params: { path: { tenant: "acme", ep: "main" } }, body: { description: "mended", metadata: { old: null } } });
const replayed = await waybill.POST("/v1/tenants/{tenant}/deliveries/{dlv}/replay", { params: { path: { tenant: "acme", dlv: dead.id } } });
check(replayed.data?.was === "dead", "it was dead");
await eventually("delivered", async () => {
  const now = await waybill.GET("/v1/tenants/{tenant}/deliveries/{dlv}", { params: { path: { tenant: "acme", dlv: dead.id } } });
  return now.data?.state === "delivered" ? now.data : undefined;
});

// Errors have a type, a code, and name the fields.
const wrong = await refusal(waybill.POST("/v1/tenants/{tenant}/endpoints", { params: acme, body: { url: "ftp://example.com", max_in_flight: 0 } }));
check(wrong.status === 422 && wrong.code === "invalid_request" && wrong.requestId !== undefined, `422: ${wrong.message}`);
check(wrong.errors.map((item) => `${item.path} ${item.code}`).sort().join() === "max_in_flight invalid_field,url url_scheme", JSON.stringify(wrong.errors));
check((await refusal(createWaybill({ url, key: "none" }).GET("/v1/whoami"))).code === "unauthorized", "a wrong key");

// Lists are walked over.
const batch = await waybill.POST("/v1/tenants/{tenant}/events/batch", {
  params: acme,
  body: { events: [1, 2, 3, 4, 5].map((n) => ({ type: "payment.noted", payload: n })) },
});
let pages = 0;
const seen: string[] = [];
for await (const event of all((cursor) => {
  pages++;
  return waybill.GET("/v1/tenants/{tenant}/events", { params: { ...acme, query: { limit: 2, order: "asc", cursor } } });
})) {
  seen.push(event.id);
}
// Ids sort by time; those of one batch have one time, and no order among themselves.
check(seen.join() === [event_id, ...(batch.data?.data ?? []).map((event) => event.id)].sort().join() && pages >= 3, `${pages} pages of ${seen}`);

// What the compiler must refuse.
// @ts-expect-error there is no such state
void (() => deliveries({ state: ["lost"] }));
// @ts-expect-error a type is needed
void (() => waybill.POST("/v1/tenants/{tenant}/events", { params: acme, body: { payload: 1 } }));
// @ts-expect-error there is no such field
void (() => endpoint.data?.colour);
// @ts-expect-error there is no such address
void (() => waybill.GET("/v1/nowhere"));

console.log(`done ${event_id}`);
