'use strict';
module.exports = {
  'recover: choose, count, confirm, follow': async (w, check) => {
    await w.answer('/v1/bulk', { status: 404 });
    await w.endpoint('parcels', 'bulk', 'http://hooks.parcels.example.com/v1/bulk', { event_types: ['bulk.*'], description: 'Bulk' });
    const ep = (await w.api('GET', '/v1/tenants/parcels/endpoints/bulk')).id;
    const from = new Date(Date.now() - 1000).toISOString();
    const events = Array.from({ length: 120 }, (_, i) => `{"type":"bulk.thing","payload":{"n":${i}}}`);
    await w.api('POST', '/v1/tenants/parcels/events/batch', `{"events":[${events.join(',')}]}`);
    // The breaker opens after 20 failures in a row; the rest waits, and is not what is replayed.
    const dead = await w.until('the breaker opens', async () => (await w.api('GET', '/v1/endpoints/' + ep)).health.breaker === 'open' && (await w.api('GET', `/v1/tenants/parcels/deliveries/counts?endpoint_id=${ep}`)).counts.dead.count);
    await w.answer('/v1/bulk', { status: 200, wait: 20 });
    await w.api('POST', `/v1/tenants/parcels/endpoints/${ep}/probe`);
    await w.until('what waited is delivered', async () => (await w.api('GET', '/v1/endpoints/' + ep)).health.pending === 0, 25000);
    const page = await w.open('parcels', { user: { id: 'u1', name: 'Sam' } });
    await page.goto(w.at('parcels', 'recover'));
    await page.selectOption('[name=endpoint_id]', ep);
    await page.fill('[name=from]', 'yesterday');
    await page.click('button:has-text("Count")');
    check((await page.textContent('#f-from')).includes('Want a time'), 'a time that is none');
    await page.fill('[name=from]', from);
    await page.click('button:has-text("Count")');
    await page.waitForSelector('.confirm');
    check((await page.textContent('.big')).includes(dead + ' can be replayed'), 'it counts what failed: ' + await page.textContent('.big'));
    check.equal(await w.hits('/v1/bulk') >= dead, true, 'and sends nothing by it');
    await w.picture(page, 'recover');
    await page.click('.confirm button');
    await page.waitForURL('**/recover/rpl_*');
    await page.waitForSelector('#head .chip.ok', { timeout: 30000 });
    check((await page.textContent('#progress')).includes(`${dead} of ${dead} done`), 'it is done: ' + await page.textContent('#progress'));
    await w.picture(page, 'recover-job');
    await w.until('all of them arrive', async () => (await w.api('GET', `/v1/tenants/parcels/deliveries/counts?endpoint_id=${ep}`)).counts.dead.count === 0);
    await page.goto(w.at('parcels', 'recover'));
    check((await page.textContent('#r3 ~ table, section[aria-labelledby=r3] table')).includes('Sam'), 'the list says who did it');
  },

  'recover: a large number is typed, and a running replay can be cancelled': async (w, check) => {
    await w.endpoint('parcels', 'many', 'http://hooks.parcels.example.com/v1/many', { event_types: ['many.*'] });
    const ep = (await w.api('GET', '/v1/tenants/parcels/endpoints/many')).id;
    const from = new Date(Date.now() - 1000).toISOString();
    await w.api('POST', '/v1/tenants/parcels/events/batch', `{"events":[${Array(150).fill('{"type":"many.things","payload":{}}').join(',')}]}`);
    await w.until('all are delivered', async () => await w.hits('/v1/many') === 150);
    await w.until('and recorded', async () => (await w.api('GET', `/v1/tenants/parcels/deliveries/counts?endpoint_id=${ep}`)).counts.delivered.count === 150);
    const page = await w.open('parcels');
    await page.goto(w.at('parcels', 'recover') + `?endpoint_id=${ep}&state=delivered&rate_per_second=5&from=${encodeURIComponent(from)}`);
    await page.fill('[name=confirm]', '15');
    await page.click('.confirm button');
    check((await page.textContent('main')).includes('Type 150'), 'the wrong number starts nothing');
    check.equal(await w.hits('/v1/many'), 150, 'nothing was sent');
    await page.fill('[name=confirm]', '150');
    await page.click('.confirm button');
    await page.waitForURL('**/recover/rpl_*');
    await page.waitForSelector('text=Cancel the rest');
    await page.click('text=Cancel the rest');
    await page.waitForSelector('#head .chip.mute', { timeout: 30000 });
    check(await w.hits('/v1/many') < 300, 'the rest was not sent');
  },
};
