'use strict';
const names = page => page.$$eval('#rows tbody', bodies => bodies.map(b => b.querySelector('.grp b').textContent));

module.exports = {
  'deliveries: what failed comes first, and filters live in the address': async (w, check) => {
    const page = await w.open('parcels', { user: { id: 'u1', name: 'Sam' } });
    check.equal(await names(page), ['Failed', 'Waiting', 'Delivered'], 'the order of the groups');
    check((await page.textContent('#outage')).includes('down.parcels.example.com:8081 has been failing since'), 'the banner tells of the outage');
    await page.click('.states >> text=Failed');
    check(page.url().endsWith('?state=dead'), 'the tab is an address: ' + page.url());
    await page.selectOption('[name=endpoint_id]', w.ep.moved);
    await page.click('text=Apply');
    await page.waitForURL(/endpoint_id/);
    check.equal(new URL(page.url()).search.slice(1).split('&').sort(), ['endpoint_id=' + w.ep.moved, 'state=dead'], 'empty filters are not in the address');
    check.equal(await page.$$eval('#rows [data-row]', a => a.map(x => x.textContent)), ['invoice.paid', 'invoice.paid', 'invoice.paid'], 'the rows');
    await page.goBack();
    check.equal(await page.inputValue('[name=endpoint_id]'), '', 'back is the filter before');
    await page.goto(w.at('parcels', 'deliveries') + '?state=&endpoint_id=&status_code=404&period=');
    check.equal(new URL(page.url()).search, '?status_code=404', 'the server sends on to the short form');
    await page.goto(w.at('parcels', 'deliveries') + '?event_type=no.such.type');
    check.equal(await page.textContent('#none h2'), 'Nothing matches', 'a filter without rows');
    await page.click('text=Clear the filters');
    check(!page.url().includes('event_type'), 'cleared');
    await page.fill('[data-search]', w.dlv['clock.checked']);
    await page.press('[data-search]', 'Enter');
    await page.waitForURL('**/deliveries/dlv_*');
    await page.goto(w.at('parcels', 'deliveries') + '?status_code=nonsense');
    check.equal(await page.textContent('#none h2'), 'This filter cannot be used', 'a bad filter');
  },

  'a stranger finds out within two clicks why a delivery failed, and gets it redelivered': async (w, check) => {
    await w.answer('/v1/gone', { status: 404, body: 'not here' });
    const event = await w.publish('parcels', 'refund.created', '{"n":1}');
    const [d] = await w.ended('parcels', event);
    const page = await w.open('parcels');
    await page.click(`a[data-row][href$="${d.id}"]`);
    const note = await page.textContent('.note.bad');
    check(note.includes('Your server answered 404 Not Found: nothing takes webhooks at this URL'), 'the fault in plain words: ' + note);
    check(note.includes('Correct the URL or deploy the handler'), 'what to do: ' + note);
    check(note.includes('nothing, until you replay'), 'what happens next');
    await w.answer('/v1/gone', { status: 200 });
    const before = await w.hits('/v1/gone');
    // The answer to the click may still show the delivery as it was, and then has no other reason to follow.
    await page.route(page.url(), async route => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, body: (await answer.text()).replace(/ data-refresh="\d+"/, '') });
    }, { times: 1 });
    await page.click('[data-replay]');
    await page.waitForSelector('#head .chip.ok', { timeout: 30000 }); // the page follows by itself
    check.equal(await w.hits('/v1/gone'), before + 1, 'requests at the server');
    check.equal(await page.$$eval('.tl .at b:first-child', b => b.map(x => x.textContent).filter(x => x.startsWith('Attempt'))), ['Attempt 1', 'Attempt 2'], 'the timeline');
  },

  'replay: each click is one request, a double click is one too, and the answer says which': async (w, check) => {
    const event = await w.publish('parcels', 'payment.twice', '{}');
    const [d] = await w.ended('parcels', event);
    const page = await w.open('parcels');
    const before = await w.hits('/v1/payments'), ids = new Set();
    // One that is asked for while the one before is under way only hastens that one.
    const recorded = () => w.until('it is recorded', async () => (await w.deliveries('parcels', 'event_id=' + event))[0].state === 'delivered');
    for (let i = 1; i <= 3; i++) {
      await page.goto(w.at('parcels', 'deliveries', d.id));
      await page.click('[data-replay]');
      await w.until('replay ' + i, async () => await w.hits('/v1/payments') === before + i);
      await recorded();
      ids.add((await w.last('/v1/payments')).headers['Webhook-Id'][0]);
    }
    check.equal([...ids], [event], 'the webhook-id stays');
    await page.goto(w.at('parcels', 'deliveries', d.id));
    await page.dblclick('[data-replay]');
    await page.waitForSelector('.done'); // the act's own page has come, which a visit elsewhere would cut short
    await w.until('the double click', async () => await w.hits('/v1/payments') >= before + 4);
    await recorded();
    await page.goto(w.at('parcels', 'deliveries', d.id));
    const form = await page.$eval('#head form', f => Object.fromEntries(new FormData(f)));
    // The same form sent twice at once, as a browser without script would: same key, one replay.
    const post = () => page.evaluate(([at, form]) => fetch(at, { method: 'POST', body: new URLSearchParams(form) }).then(r => r.status), [w.at('parcels', 'replay'), form]);
    await Promise.all([post(), post()]);
    await w.until('the pair', async () => await w.hits('/v1/payments') >= before + 5);
    await recorded();
    const attempts = (await w.api('GET', `/v1/tenants/parcels/deliveries/${d.id}/attempts?order=asc`)).data;
    check.equal(await w.hits('/v1/payments'), before + 5, 'requests after three clicks, a double click and a pair');
    check.equal(attempts.map(a => a.trigger), ['schedule', 'replay', 'replay', 'replay', 'replay', 'replay'], 'each is marked');
  },

  'selected deliveries are replayed together': async (w, check) => {
    await w.answer('/v1/moved', { status: 200 });
    const page = await w.open('parcels');
    await page.goto(w.at('parcels', 'deliveries') + '?state=dead&event_type=invoice.paid');
    const before = await w.hits('/v1/moved');
    await page.check('[data-all]');
    check.equal(await page.textContent('[data-count]'), '3', 'the bar counts');
    await page.click('.bulk button');
    check((await page.textContent('.done')).includes('3 replays are under way'), 'the answer says how many');
    await w.until('all three arrive', async () => await w.hits('/v1/moved') === before + 3);
  },

  'keys: the list and a delivery without a mouse': async (w, check) => {
    const page = await w.open('parcels');
    const focused = () => page.evaluate(() => document.activeElement.textContent.trim() + '|' + (document.activeElement.getAttribute('aria-label') || ''));
    await page.keyboard.press('j');
    const first = await page.evaluate(() => document.activeElement.href);
    check(first && first.includes('/deliveries/dlv_'), 'j goes to the first row');
    await page.keyboard.press('j');
    await page.keyboard.press('k');
    check.equal(await page.evaluate(() => document.activeElement.href), first, 'k goes back');
    await page.keyboard.press('x');
    check(await page.isVisible('.bulk'), 'x selects, and the bar appears');
    await page.keyboard.press('x');
    check(!await page.isVisible('.bulk'), 'x again takes it back');
    await page.keyboard.press('r');
    check((await focused()).startsWith('Replay'), 'r goes to Replay and does not press it');
    await page.keyboard.press('?');
    check(await page.isVisible('#keys'), '? shows the sheet');
    await page.keyboard.press('Escape');
    check(!await page.isVisible('#keys'), 'Escape closes it');
    await page.keyboard.press('/');
    check(await page.evaluate(() => document.activeElement.matches('[data-search]')), '/ goes to the search');
    await page.keyboard.type('jkx?');
    check.equal(await page.inputValue('[data-search]'), 'jkx?', 'keys rest in fields');
    await page.keyboard.press('Escape');
    await page.goto(w.at('parcels', 'deliveries', w.dlv['clock.checked']));
    await page.keyboard.press('c');
    await w.until('curl is copied', async () => (await page.evaluate(() => navigator.clipboard.readText())).startsWith('curl '));
    await page.keyboard.press('r');
    check(await page.evaluate(() => document.activeElement.matches('[data-replay]')), 'r on a delivery');
    // Every control can be reached by Tab, in the order it is seen, and shows that it has the focus.
    await page.goto(w.at('parcels', 'deliveries'));
    const seen = new Set();
    for (let i = 0; i < 40; i++) {
      await page.keyboard.press('Tab');
      const [what, outline] = await page.evaluate(() => { const e = document.activeElement, s = getComputedStyle(e), p = e.closest('.in') ? getComputedStyle(e.closest('.in')) : s; return [e.tagName + (e.name || e.textContent.slice(0, 20)), s.outlineStyle !== 'none' || p.outlineStyle !== 'none']; });
      seen.add(what);
      check(outline, 'the focus cannot be seen on ' + what);
    }
    check([...seen].some(s => s.startsWith('BUTTONdelivery')), 'Replay is reached by Tab: ' + [...seen].join(', '));
  },

  'a delivery shows the real answer, where the time went, and a command that sends the same': async (w, check) => {
    const page = await w.open('parcels');
    await page.goto(w.at('parcels', 'deliveries', w.dlv['clock.checked']));
    check((await page.textContent('#fault')).includes('its clock is 7 min 12 s ahead'), 'the clock is named: ' + await page.textContent('#fault'));
    check((await page.textContent('[id$=-answer] mark')).includes('GMT'), 'and the header that shows it is marked');
    check((await page.textContent('[id$=-answer] pre')).includes('⟨U+202E⟩docs'), 'what cannot be seen is shown');
    await page.click('details[open] >> text=Our request');
    check.equal(await page.textContent('[id$=-request] pre'), w.exact, 'the body, digit for digit');
    check(await page.isVisible('text=webhook-signature'), 'the headers that were sent');
    await w.picture(page, 'delivery');
    const command = await page.textContent('[id$=-command]');
    const { execFileSync } = require('child_process'), fs = require('fs'), os = require('os'), path = require('path');
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'waybill-curl-'));
    fs.writeFileSync(path.join(folder, 'curl'), '#!/bin/sh\nfor last; do :; done\nprintf %s "$last"\n', { mode: 0o755 });
    const sent = execFileSync('/bin/sh', ['-c', command], { env: { PATH: folder + ':' + process.env.PATH } }).toString();
    fs.rmSync(folder, { recursive: true });
    check.equal(sent, w.exact, 'the body of the command');
  },

  'what an address answers that an allow list opened is not for customers': async (w, check) => {
    const page = await w.open('parcels');
    await page.goto(w.at('parcels', 'deliveries', w.dlv['inside.thing']));
    check((await page.textContent('[id$=-answer]')).includes('private network'), 'the page says why');
    check(!(await page.content()).includes('secret of the network'), 'and shows nothing of it');
    const seen = (await w.api('GET', `/v1/deliveries/${w.dlv['inside.thing']}/attempts`)).data[0];
    check.equal(seen.response.body, 'secret of the network', 'the operator sees it');
  },

  'a waiting delivery says why and until when': async (w, check) => {
    const page = await w.open('parcels');
    await page.goto(w.at('parcels', 'deliveries', w.dlv['stock.low']));
    check((await page.textContent('.note.warn')).includes('we try again by ourselves'), 'retrying');
    await page.goto(w.at('parcels', 'deliveries', w.dlv['later.thing']));
    check((await page.textContent('#why')).includes('the endpoint is paused'), 'paused');
    const [held] = await w.deliveries('parcels', 'state=pending&event_type=parcel.moved&limit=1');
    await page.goto(w.at('parcels', 'deliveries', held.id));
    check((await page.textContent('#why')).includes('until your server answers again'), 'the breaker');
    await w.picture(page, 'delivery-waiting');
  },
};
