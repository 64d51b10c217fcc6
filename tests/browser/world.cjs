// The world the flows act in: a server, customers' receivers, tenants with real deliveries.
'use strict';
const fs = require('fs'), path = require('path');

// What strangers write wherever they can. Each would tell if it were ever taken for markup.
const evil = [
  `<img src=x onerror=fetch('/canary')>`,
  `"><script>fetch('/canary')</script>`,
  `'-fetch('/canary')-'`,
  `</script><script>fetch('/canary')</script>`,
  `javascript:fetch('/canary')`,
  `</textarea></pre></title><svg onload=fetch('/canary')>`,
  `{{7*7}}\${7*7}`,
];

// Digits that a program which parses JSON would round, and bytes that it would move.
const exact = '{ "id":1152921506151679042,  "z":1.10, "a":1e2, "big":123456789012345678901234567890, "é":"\\u00e9\\/" }';

class World {
  constructor(settings, browser) {
    Object.assign(this, settings);
    this.browser = browser;
    this.evil = evil;
    this.exact = exact;
    this.contexts = [];
    this.trouble = [];
    fs.mkdirSync(this.pictures, { recursive: true });
  }

  // api calls the HTTP API with the operator's key.
  async api(method, at, body, want) {
    const r = await fetch(this.base + at, {
      method, headers: { authorization: 'Bearer ' + this.key, 'content-type': 'application/json' },
      body: body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body),
    });
    const text = await r.text();
    if (want ? r.status !== want : !r.ok) throw new Error(`${method} ${at}: ${r.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  // answer sets what a path of the receivers answers from now on.
  async answer(at, reply) {
    await fetch(this.control + '/answer?path=' + encodeURIComponent(at), { method: 'POST', body: JSON.stringify(reply) });
  }

  async hits(at) { return (await (await fetch(this.control + '/hits?path=' + encodeURIComponent(at))).json()).hits; }
  async last(at) { return (await (await fetch(this.control + '/hits?path=' + encodeURIComponent(at))).json()).last; }

  // until asks until the condition holds.
  async until(what, holds, within = 30000) {
    for (const end = Date.now() + within; ;) {
      const got = await holds();
      if (got) return got;
      if (Date.now() > end) throw new Error('not within ' + within + ' ms: ' + what);
      await new Promise(r => setTimeout(r, 50));
    }
  }

  async endpoint(tenant, uid, url, more = {}) {
    return this.api('PUT', `/v1/tenants/${tenant}/endpoints/${uid}`, { url, ...more });
  }

  async publish(tenant, type, payload = '{}') {
    return (await this.api('POST', `/v1/tenants/${tenant}/events`, `{"type":${JSON.stringify(type)},"payload":${payload}}`)).id;
  }

  async deliveries(tenant, query = '') { return (await this.api('GET', `/v1/tenants/${tenant}/deliveries?${query}`)).data; }

  // ended waits until the event's deliveries are no longer on their way.
  async ended(tenant, event, n = 1) {
    return this.until('deliveries of ' + event, async () => {
      const all = await this.deliveries(tenant, 'event_id=' + event);
      return all.length >= n && all.every(d => d.state !== 'pending') && all;
    });
  }

  // make fills the server: a customer with every kind of trouble, a rival, a customer of yesterday.
  async make() {
    const host = 'http://hooks.parcels.example.com';
    await this.api('PUT', '/v1/tenants/parcels', { name: 'Example Parcels' });
    await this.api('PUT', '/v1/tenants/rival', { name: 'Rival' });
    await this.api('PUT', '/v1/tenants/fresh', {});
    await this.answer('/v1/clock', { status: 401, skew: 432, headers: { 'Content-Type': 'application/json', 'X-Request-Id': 'b1946ac9-2f0e' }, body: '{"error":"invalid_signature","message":"timestamp outside tolerance: message is 432 s old, limit is 300 s","hint":"see \u202edocs"}' });
    await this.answer('/v1/gone', { status: 404, headers: { 'Content-Type': 'text/html' }, body: evil.join('\n') });
    await this.answer('/v1/moved', { status: 308, headers: { Location: 'https://ledger.example.com/webhooks/' } });
    await this.answer('/v1/busy', { status: 503, headers: { 'Retry-After': '120' }, body: 'busy' });
    await this.answer('/v1/evil', { status: 422, headers: { Server: evil[0], 'Content-Type': evil[1] }, body: evil.join('\n') + '\u0000\u0007 \u202Eabc שלום' });
    this.ep = {};
    const make = async (uid, url, more) => { this.ep[uid] = (await this.endpoint('parcels', uid, url, more)).id; };
    await make('payments', host + '/v1/payments', { description: 'Payments', event_types: ['payment.*'] });
    await make('clock', host + '/v1/clock', { event_types: ['clock.checked'] });
    await make('gone', host + '/v1/gone', { event_types: ['refund.*'] });
    await make('moved', 'http://ledger.parcels.example.com/v1/moved', { description: 'Ledger', event_types: ['invoice.*'] });
    await make('busy', 'http://riyadh.parcels.example.com/v1/busy', { description: 'مستودع الرياض', event_types: ['stock.*'] });
    await make('evil', host + '/v1/evil?q=%22%3E%3Cscript%3E&x=' + encodeURIComponent(evil[2]), { description: evil[0], event_types: ['evil.*'], headers: { 'X-Evil': evil[1] } });
    await make('down', 'http://down.parcels.example.com:8081/', { description: 'Warehouse', event_types: ['parcel.*'] });
    await make('inside', this.control + '/inside', { description: 'Inside', event_types: ['inside.*'] });
    await make('paused', host + '/v1/later', { description: 'Later', event_types: ['later.*'], state: 'paused' });
    await this.answer('/inside', { status: 500, headers: { 'X-Inside': 'secret of the network' }, body: 'secret of the network' });

    const rival = await this.endpoint('rival', 'hooks', host + '/rival', {});
    await this.answer('/rival', { status: 404 });
    this.rival = { ep: rival.id, evt: await this.publish('rival', 'rival.secret', '{"secret":"of the rival"}') };
    this.rival.dlv = (await this.ended('rival', this.rival.evt))[0].id;
    this.rival.hits = await this.hits('/rival');

    this.evt = {};
    for (let i = 0; i < 14; i++) await this.publish('parcels', 'payment.succeeded', `{"n":${i}}`);
    for (let i = 0; i < 25; i++) await this.publish('parcels', 'parcel.moved', `{"n":${i}}`);
    for (let i = 0; i < 3; i++) await this.publish('parcels', 'invoice.paid');
    for (const type of ['clock.checked', 'refund.created', 'stock.low', 'evil.thing', 'inside.thing', 'later.thing', 'nobody.wants']) {
      this.evt[type] = await this.publish('parcels', type, type === 'evil.thing' ? JSON.stringify({ html: evil, rtl: 'مكتبة \u202E' }) : type === 'clock.checked' ? exact : '{"type":"' + type + '"}');
    }
    this.dlv = {};
    for (const type of ['clock.checked', 'refund.created', 'evil.thing', 'inside.thing', 'stock.low', 'later.thing']) {
      this.dlv[type] = await this.until(type, async () => { const [d] = await this.deliveries('parcels', 'event_id=' + this.evt[type]); return d && (d.attempt_count > 0 || type === 'later.thing') && d.id; });
    }
    await this.until('the breaker opens', async () => (await this.api('GET', '/v1/endpoints/' + this.ep.down)).health.breaker === 'open');
    await this.until('invoices are refused', async () => (await this.deliveries('parcels', 'state=dead&event_type=invoice.paid')).length === 3);
  }

  async link(tenant, more = {}) { return this.api('POST', `/v1/tenants/${tenant}/portal-sessions`, { expires_in_seconds: 3600, ...more }); }

  // context is a browser without a past. What must not happen on any page is noted.
  async context(options = {}) {
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 900 }, permissions: ['clipboard-read', 'clipboard-write'], ...options });
    this.contexts.push(context);
    context.on('request', r => {
      const u = new URL(r.url());
      if (u.pathname.startsWith('/canary')) this.trouble.push('a stranger’s script ran on ' + r.frame().url());
      if (u.protocol !== 'data:' && u.origin !== new URL(this.base).origin && !options.elsewhere) this.trouble.push('a page asked for ' + r.url());
    });
    context.on('weberror', e => this.trouble.push('script failed: ' + e.error().message));
    context.on('console', m => { if (/Content Security Policy|Refused to/.test(m.text())) this.trouble.push('the policy was broken: ' + m.text()); });
    context.on('dialog', d => { this.trouble.push('a dialog opened: ' + d.message()); d.dismiss(); });
    return context;
  }

  // open lets a customer in and returns their page.
  async open(tenant, more = {}, options = {}) {
    const page = await (await this.context(options)).newPage();
    await page.goto((await this.link(tenant, more)).url);
    await page.click('[data-continue]');
    await page.waitForURL(this.base + `/portal/${tenant}/**`);
    return page;
  }

  at(...parts) { return this.base + '/portal/' + parts.map(encodeURIComponent).join('/'); }

  async picture(page, name) { await page.screenshot({ path: path.join(this.pictures, name + '.png'), fullPage: true }); }

  // shown is what a flow that broke off was looking at.
  async shown() {
    const pages = this.contexts.flatMap(c => c.pages());
    return Promise.all(pages.map(async p => p.url() + ' showed: ' + (await p.textContent('main', { timeout: 1000 }).catch(() => '')).replace(/\s+/g, ' ').slice(0, 800)));
  }

  // tidy closes what a flow opened and tells what must not have happened.
  async tidy() {
    for (const c of this.contexts.splice(0)) await c.close();
    return this.trouble.splice(0);
  }

  // pages are the addresses of every page of the customer's, with a name for each.
  pages() {
    const p = 'parcels';
    return {
      deliveries: this.at(p, 'deliveries'), 'deliveries-failed': this.at(p, 'deliveries') + '?state=dead', 'deliveries-none': this.at(p, 'deliveries') + '?state=dead&event_type=no.such',
      'delivery-clock': this.at(p, 'deliveries', this.dlv['clock.checked']), 'delivery-evil': this.at(p, 'deliveries', this.dlv['evil.thing']),
      'delivery-retrying': this.at(p, 'deliveries', this.dlv['stock.low']), 'delivery-paused': this.at(p, 'deliveries', this.dlv['later.thing']),
      'delivery-command': this.at(p, 'deliveries', this.dlv['evil.thing']) + '/curl',
      'delivery-inside': this.at(p, 'deliveries', this.dlv['inside.thing']),
      events: this.at(p, 'events'), event: this.at(p, 'events', this.evt['evil.thing']), 'event-unwanted': this.at(p, 'events', this.evt['nobody.wants']),
      endpoints: this.at(p, 'endpoints'), 'endpoint-down': this.at(p, 'endpoints', this.ep.down), 'endpoint-evil': this.at(p, 'endpoints', this.ep.evil),
      'endpoint-paused': this.at(p, 'endpoints', this.ep.paused), 'endpoint-new': this.at(p, 'endpoints', 'new'), 'endpoint-edit': this.at(p, 'endpoints', this.ep.evil) + '/edit',
      'endpoint-remove': this.at(p, 'endpoints', this.ep.payments) + '/remove', recover: this.at(p, 'recover') + '?from=2020-01-01&state=dead',
      preferences: this.at(p, 'preferences'), missing: this.at(p, 'deliveries', 'dlv_00000000000000000000000000'),
    };
  }
}

module.exports = { World };
