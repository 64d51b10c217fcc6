'use strict';
module.exports = {
  'an endpoint from its first address to its removal, by mouse': async (w, check) => {
    const page = await w.open('parcels');
    await page.click('nav >> text=Endpoints');
    await page.click('text=Add an endpoint');
    await page.fill('[name=url]', 'http://169.254.169.254/latest');
    await page.fill('[name=description]', 'Mine');
    await page.fill('[name=event_types]', 'mine.*');
    await page.click('text=Add the endpoint');
    check(await page.$('[name=url][aria-invalid=true]'), 'an address that must not be dialled is refused at its field');
    check((await page.textContent('#f-url')).length > 10, 'with a sentence');
    check.equal([await page.inputValue('[name=description]'), await page.inputValue('[name=event_types]')], ['Mine', 'mine.*'], 'what was typed stays');
    await w.picture(page, 'endpoint-refused');
    await page.fill('[name=url]', 'http://hooks.parcels.example.com/v1/mine');
    await page.click('text=Add the endpoint');
    const secret = await page.textContent('#secret');
    check(/^whsec_[A-Za-z0-9+/=]{32,}$/.test(secret), 'the secret is shown');
    await w.picture(page, 'secret');
    await page.click('text=Copy the secret');
    await w.until('the secret is copied', async () => await page.evaluate(() => navigator.clipboard.readText()) === secret);
    await page.click('text=I have kept it');
    check(!(await page.content()).includes(secret.slice(6, 20)), 'it is not shown again');

    await page.click('text=Edit');
    await page.fill('[name=description]', 'Mine, renamed');
    await page.fill('[name=timeout_seconds]', '99');
    await page.click('text=Save the changes');
    check((await page.textContent('.fault')).length > 5, 'a timeout of 99 s is refused with a sentence');
    await page.fill('[name=timeout_seconds]', '5');
    await page.fill('[name=headers]', 'X-Account: 42');
    await page.click('text=Save the changes');
    check.equal((await page.textContent('h1 bdi')), 'Mine, renamed', 'the new name');

    await page.click('button:has-text("Pause")');
    check((await page.textContent('.done')).includes('Paused'), 'paused');
    const event = await w.publish('parcels', 'mine.first', '{"a":1}');
    await w.until('it waits', async () => (await w.deliveries('parcels', 'event_id=' + event)).length === 1);
    check.equal(await w.hits('/v1/mine'), 0, 'nothing is sent while paused');
    await page.click('button:has-text("Resume")');
    await w.until('it is sent', async () => await w.hits('/v1/mine') === 1);

    await page.selectOption('[name=overlap_seconds]', '3600');
    await page.click('button:has-text("Rotate")');
    const next = await page.textContent('#secret');
    check(next !== secret && /^whsec_/.test(next), 'a new secret');
    check((await page.textContent('main')).includes('The old secret goes on signing'), 'and what becomes of the old one');
    await page.click('text=I have kept it');
    check((await page.textContent('main')).includes('Several secrets are signing'), 'the overlap is shown');
    await page.reload();
    await w.publish('parcels', 'mine.second', '{}');
    await w.until('it is sent', async () => await w.hits('/v1/mine') === 2);
    check.equal((await w.last('/v1/mine')).headers['Webhook-Signature'][0].split(' ').length, 2, 'signatures of a request');

    await page.click('text=Remove endpoint…');
    check((await page.textContent('main')).includes('cannot be undone'), 'it asks first');
    await page.click('button:has-text("Remove the endpoint")');
    check((await page.textContent('.done')).includes('removed'), 'removed');
    check(!(await page.textContent('main')).includes('Mine, renamed'), 'and gone from the list');
  },

  'an endpoint by keys alone': async (w, check) => {
    const page = await w.open('parcels');
    await page.goto(w.at('parcels', 'endpoints', 'new'));
    await page.focus('[name=url]');
    await page.keyboard.type('http://hooks.parcels.example.com/v1/keys');
    for (const text of ['Keys', '']) { await page.keyboard.press('Tab'); if (text) await page.keyboard.type(text); }
    await page.keyboard.press('Control+A');
    await page.keyboard.type('keys.*');
    await page.focus('[name=url]');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#secret');
    await page.focus('text=I have kept it');
    await page.keyboard.press('Enter');
    await page.waitForSelector('h1 bdi');
    check.equal(await page.textContent('h1 bdi'), 'Keys', 'it was made');
    await page.focus('button:has-text("Pause")');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.done');
    check((await page.textContent('.done')).includes('Paused'), 'paused by Enter');
  },

  'a test event goes to its endpoint alone, and its page follows it': async (w, check) => {
    const page = await w.open('parcels'), before = await w.hits('/v1/payments');
    await page.goto(w.at('parcels', 'endpoints', w.ep.gone));
    await page.fill('[name=payload]', '{"a":');
    await page.click('text=Send test event');
    check((await page.textContent('#test .fault')).length > 5, 'a body that is no JSON is refused');
    check.equal(await page.inputValue('[name=payload]'), '{"a":', 'what was typed stays');
    await page.fill('[name=payload]', '{"a":1.10}');
    await page.fill('[name=type]', 'payment.tested');
    await page.click('text=Send test event');
    await page.waitForURL('**/deliveries/dlv_*');
    await w.until('it arrives', async () => (await w.last('/v1/gone')).headers?.['Waybill-Event-Type']?.[0] === 'payment.tested');
    check.equal(Buffer.from((await w.last('/v1/gone')).body, 'base64').toString(), '{"a":1.10}', 'its bytes');
    check.equal(await w.hits('/v1/payments'), before, 'the endpoint that wants this type gets none');
    await page.waitForSelector('#head .chip.ok, #head .chip.bad', { timeout: 30000 });
  },

  'a customer of a minute ago is told the one thing to do': async (w, check) => {
    const page = await w.open('fresh');
    check.equal(await page.textContent('.empty h2'), 'Nothing can be sent yet', 'deliveries');
    await w.picture(page, 'empty');
    await page.click('text=Add an endpoint');
    await page.fill('[name=url]', 'http://hooks.fresh.example.com/in');
    await page.click('text=Add the endpoint');
    await page.goto(w.at('fresh', 'deliveries'));
    check.equal(await page.textContent('.empty h2'), 'Nothing has been sent yet', 'with an endpoint');
    await page.goto(w.at('fresh', 'events'));
    check.equal(await page.textContent('.empty h2'), 'No event yet', 'events');
  },

  'events: what was published, to whom it went, and its bytes': async (w, check) => {
    const page = await w.open('parcels');
    await page.click('nav >> text=Events');
    await page.fill('[name=event_type]', 'clock.checked');
    await page.click('text=Apply');
    await page.waitForURL(/event_type=clock/);
    await page.click('[data-row]');
    check.equal(await page.textContent('#payload'), w.exact, 'the body, digit for digit');
    await page.click('#bytes ~ span >> text=Copy');
    await w.until('the body is copied', async () => await page.evaluate(() => navigator.clipboard.readText()) === w.exact);
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('text=Download')]);
    check.equal(require('fs').readFileSync(await download.path(), 'utf8'), w.exact, 'the file');
    await page.goto(w.at('parcels', 'events', w.evt['nobody.wants']));
    check((await page.textContent('main')).includes('No endpoint wanted this type'), 'an event nobody wanted');
  },
};
