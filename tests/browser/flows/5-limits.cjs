'use strict';
// Forms and addresses with ids that are not the customer's, and links that allow less.
module.exports = {
  'a second tenant’s ids are as good as unknown, in every address and form': async (w, check) => {
    const page = await w.open('parcels');
    const unknown = { dlv: 'dlv_01m8nr6fzjezsmcdf2aftwjyw0', evt: 'evt_01m8nr6fzjezsmcdf2aftwjyw0', ep: 'ep_01m8nr6fzjezsmcdf2aftwjyw0' };
    const get = at => page.evaluate(at => fetch(at).then(async r => [r.status, (await r.text()).replace(/(dlv|evt|ep)_[0-9a-z]{26}/g, 'ID').replace(/name="idempotency_key" value="[^"]*"/g, '')]), at);
    const post = (at, form) => page.evaluate(([at, form]) => fetch(at, { method: 'POST', body: new URLSearchParams(form) }).then(async r => [r.status, (await r.text()).replace(/(dlv|evt|ep)_[0-9a-z]{26}/g, 'ID')]), [at, form]);
    const same = async (what, ask) => {
      const [foreign, none] = [await ask(w.rival), await ask(unknown)];
      check(foreign[0] === 404, `${what}: ${foreign[0]}, want 404`);
      check(foreign[1] === none[1] && foreign[0] === none[0], `${what}: a foreign id is answered differently from an unknown one`);
      check(!foreign[1].includes('rival.secret') && !foreign[1].includes('of the rival'), what + ' shows something of the rival');
    };
    await same('a delivery', ids => get(w.at('parcels', 'deliveries', ids.dlv)));
    await same('an event', ids => get(w.at('parcels', 'events', ids.evt)));
    await same('its bytes', ids => get(w.at('parcels', 'events', ids.evt) + '/payload'));
    await same('an endpoint', ids => get(w.at('parcels', 'endpoints', ids.ep)));
    await same('its form', ids => get(w.at('parcels', 'endpoints', ids.ep) + '/edit'));
    await same('a replay', ids => post(w.at('parcels', 'replay'), { delivery: ids.dlv, idempotency_key: 'k' + ids.dlv }));
    for (const act of ['pause', 'resume', 'rotate', 'test', 'probe', 'remove']) {
      await same(act, ids => post(w.at('parcels', 'endpoints', ids.ep) + '/' + act, { overlap_seconds: 0, type: 'a.b', payload: '{}', idempotency_key: act + ids.ep }));
    }
    await same('an edit', ids => post(w.at('parcels', 'endpoints', ids.ep) + '/edit', { url: 'http://hooks.parcels.example.com/x', timeout_seconds: 10, event_types: '*' }));
    for (const filter of ['endpoint_id=' + w.rival.ep, 'endpoint_id[]=' + w.rival.ep, 'endpoint_id=']) {
      const [status, text] = await get(w.at('parcels', 'deliveries') + '?state=dead&' + filter);
      check(status === 200 && !text.includes('rival'), 'the list filtered by ' + filter);
    }
    for (const form of [{ endpoint_id: w.rival.ep }, { 'endpoint_id[]': w.rival.ep }, { delivery_ids: w.rival.dlv }, {}]) {
      await post(w.at('parcels', 'recover'), { state: 'dead', from: '2020-01-01', to: new Date().toISOString(), counted: 1, idempotency_key: 'r' + JSON.stringify(form), ...form });
    }
    check.equal(await w.hits('/rival'), w.rival.hits, 'requests at the rival’s server');
  },

  'a link to look only shows everything and changes nothing': async (w, check) => {
    const page = await w.open('parcels', { read_only: true });
    for (const [name, at] of Object.entries(w.pages())) {
      if (/new|edit|remove/.test(name)) {
        check.equal((await page.goto(at)).status(), 403, name);
        continue;
      }
      await page.goto(at);
      const acts = await page.$$eval('main form[method=post]', forms => forms.filter(f => f.querySelector('button') && !f.querySelector('[name=zone]')).map(f => f.action));
      check.equal(acts, [], `acts on ${name}`);
    }
    const post = (at, form) => page.evaluate(([at, form]) => fetch(at, { method: 'POST', body: new URLSearchParams(form) }).then(r => r.status), [at, form]);
    check.equal(await post(w.at('parcels', 'replay'), { delivery: w.dlv['refund.created'] }), 403, 'replay');
    for (const act of ['pause', 'resume', 'rotate', 'test', 'probe', 'remove', 'edit']) check.equal(await post(w.at('parcels', 'endpoints', w.ep.payments) + '/' + act, {}), 403, act);
    check.equal(await post(w.at('parcels', 'endpoints'), { url: 'http://hooks.parcels.example.com/x' }), 403, 'add');
    check.equal(await post(w.at('parcels', 'recover'), { counted: 1 }), 403, 'recover');
    check.equal((await w.api('GET', '/v1/endpoints/' + w.ep.payments)).state, 'active', 'the endpoint is as it was');
  },

  'a link to replay does not let one change endpoints': async (w, check) => {
    const page = await w.open('parcels', { permissions: ['view', 'replay'] });
    await page.goto(w.at('parcels', 'endpoints', w.ep.payments));
    check(!await page.$('text=Rotate') && !await page.$('button:has-text("Pause")') && !await page.$('text=Edit'), 'the acts are absent');
    check.equal(await page.evaluate(at => fetch(at, { method: 'POST' }).then(r => r.status), w.at('parcels', 'endpoints', w.ep.payments) + '/pause'), 403, 'pause');
    await page.goto(w.at('parcels', 'deliveries', w.dlv['clock.checked']));
    check(await page.$('[data-replay]'), 'replay is there');
  },

  'the pages may be framed by those allowed, and by nobody else': async (w, check) => {
    const { url } = await w.link('parcels');
    const headers = (await fetch(url)).headers;
    check(headers.get('content-security-policy').includes('frame-ancestors ' + w.control), 'the policy: ' + headers.get('content-security-policy'));
    check.equal((await fetch(w.base + '/portal/parcels/deliveries', { method: 'POST', headers: { 'sec-fetch-site': 'cross-site' } })).status, 404, 'no act at a page');
    check.equal((await fetch(w.at('parcels', 'replay'), { method: 'POST', headers: { origin: 'https://evil.example' } })).status, 401, 'an act from elsewhere, without a session');
  },
};
