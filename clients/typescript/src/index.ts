/**
 * A client of Waybill's HTTP API. The types come from the OpenAPI document that the server prints
 * (api.gen.ts); this file adds the key, errors that are thrown, and walking over pages.
 */
import createFetchClient, { type Client, type Middleware } from "openapi-fetch";
import type { components, paths } from "./api.gen.js";

export type { components, operations, paths } from "./api.gen.js";

/** The objects of the API by name: Schemas["Delivery"]. Answers gain fields with time. */
export type Schemas = components["schemas"];
export type Problem = Schemas["Problem"];
/** What programs decide by. The list grows: leave a way for a code that you do not know. */
export type ErrorCode = Schemas["ErrorCode"];

export interface Options {
  /** Where the server is, such as http://127.0.0.1:8420. */
  url: string;
  /** An API key; it stays on the server side, never in a browser. */
  key: string;
  /** What sends the requests, for a proxy or a test; the platform's fetch by default. */
  fetch?: (request: Request) => Promise<Response>;
  /** How long one request may take, in milliseconds; 60,000 by default. */
  timeout?: number;
}

/** A refusal: an answer of 400 and above. */
export class WaybillError extends Error {
  override readonly name = "WaybillError";
  /** Undefined where the answer is not Waybill's own: something between may have given it. */
  readonly code: ErrorCode | undefined;
  readonly status: number;
  /** By it the server's log has the request. */
  readonly requestId: string | undefined;
  /** Every field that is wrong. */
  readonly errors: Schemas["Item"][];
  /** Seconds to wait before the same request is sent again, where the server asks for it. */
  readonly retryAfter: number | undefined;
  readonly problem: Problem | undefined;

  constructor(answer: Response, problem: Problem | undefined) {
    super(problem ? `${problem.code}: ${problem.detail}` : `status ${answer.status}, and no problem document`);
    this.code = problem?.code;
    this.status = answer.status;
    this.requestId = problem?.request_id ?? answer.headers.get("Waybill-Request-Id") ?? undefined;
    this.errors = problem?.errors ?? [];
    const seconds = Number(answer.headers.get("Retry-After") ?? Number.NaN);
    this.retryAfter = Number.isFinite(seconds) ? seconds : undefined;
    this.problem = problem;
  }
}

export type Waybill = Client<paths>;

/**
 * Makes a client. Paths and fields are those of the API, checked by the compiler:
 *
 *   const waybill = createWaybill({ url: "http://127.0.0.1:8420", key });
 *   const { data } = await waybill.POST("/v1/tenants/{tenant}/events", {
 *     params: { path: { tenant: "acme" } },
 *     body: { type: "payment.succeeded", payload: { id: "pay_1" } },
 *   });
 *
 * Every answer of 400 and above is thrown as a WaybillError, so data is there when a call returns.
 * Only GET /readyz answers 503 with an object of its own, as openapi-fetch's error.
 */
export function createWaybill(options: Options): Waybill {
  const send = options.fetch ?? fetch;
  const client = createFetchClient<paths>({
    baseUrl: options.url.replace(/\/+$/, ""),
    // event_type=a&event_type=b, as the document has it.
    querySerializer: { array: { style: "form", explode: true } },
    fetch: (request) => send(new Request(request, { signal: AbortSignal.any([request.signal, AbortSignal.timeout(options.timeout ?? 60_000)]) })),
  });
  const refuse: Middleware = {
    onRequest({ request }) {
      request.headers.set("Authorization", `Bearer ${options.key}`);
      return request;
    },
    async onResponse({ response }) {
      const kind = response.headers.get("Content-Type")?.split(";")[0]?.trim();
      if (response.status < 400 || kind === "application/json") {
        return undefined;
      }
      let problem: Problem | undefined;
      if (kind === "application/problem+json") {
        try {
          problem = (await response.json()) as Problem;
        } catch {
          problem = undefined; // cut off on the way; the status says what there is to say
        }
      }
      throw new WaybillError(response, problem);
    },
  };
  client.use(refuse);
  return client;
}

/**
 * Walks over a list, page after page. A page may be short, even empty, and not the last.
 *
 *   for await (const delivery of all((cursor) => waybill.GET("/v1/tenants/{tenant}/deliveries", {
 *     params: { path: { tenant: "acme" }, query: { cursor } },
 *   }))) { … }
 */
export async function* all<Row>(
  page: (cursor: string | undefined) => Promise<{ data?: { data: Row[]; next_cursor: string | null } }>,
): AsyncGenerator<Row, void, undefined> {
  let cursor: string | undefined;
  for (;;) {
    const { data } = await page(cursor);
    if (!data) {
      throw new Error("the list has no answer");
    }
    yield* data.data;
    if (data.next_cursor === null) {
      return;
    }
    cursor = data.next_cursor;
  }
}
