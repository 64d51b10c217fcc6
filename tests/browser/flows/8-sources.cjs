'use strict';
// Other people's webhooks, on the operator's side.
const crypto = require('crypto'), fs = require('fs');
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const serious = page => page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }).then(r => r.violations
  .filter(v => v.impact === 'serious' || v.impact === 'critical').map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(' | '))));

// send posts to a source as GitHub does, and returns the status.
async function send(address, secret, id, body) {
  const signature = 'sha256=' + crypto.createHmac('sha256', secret).update(body).digest('hex');
  return (await fetch(address, { method: 'POST', body, headers: { 'X-Hub-Signature-256': signature, 'X-GitHub-Delivery': id, 'X-GitHub-Event': 'push' } })).status;
}

module.exports = {
  'sources: made without script, its secret shown once, what arrives and what is refused is seen': async (w, check) => {
    const page = await (await w.context({ javaScriptEnabled: false })).newPage();
    await page.goto((await w.api('POST', '/v1/operator-sessions', {})).url);
    await page.click('[data-continue]');
    await page.click('nav >> text=Sources');
    await page.click('text=Add a source');
    await page.fill('[name=source]', 'hub');
    await page.selectOption('[name=provider]', 'github');
    await page.fill('[name=tenant]', 'nobody');
    await page.fill('[name=event_type]', 'github.{topic}');
    await page.click('button:has-text("Add the source")');
    check(await page.$('[name=tenant][aria-invalid=true]'), 'an unknown tenant is refused at its field');
    await page.fill('[name=tenant]', 'parcels');
    await page.click('button:has-text("Add the source")');
    const first = await page.textContent('#secret'), address = await page.textContent('#address');
    check.equal(address, w.base + '/in/hub', 'the address to give away');
    check.equal(await send(address, first, 'd-1', w.exact), 200, 'what is signed with it');
    check.equal(await send(address, first, 'd-1', w.exact), 200, 'the same again');
    check.equal(await send(address, 'somebody else’s', 'd-2', '{}'), 401, 'what is not');
    await page.click('text=I have kept it');
    check(!(await page.content()).includes(first), 'the secret is not shown again');
    await w.until('all three are on the page', async () => {
      await page.reload();
      return (await page.textContent('#arrived tbody')).includes('Refused') && (await page.locator('#arrived tbody tr').count()) === 3;
    });
    await w.picture(page, 'source');
    await page.click('.states >> text=Refused');
    check.equal(await page.locator('#arrived tbody tr').count(), 1, 'the refused one alone');

    await page.selectOption('[name=overlap_seconds]', '3600');
    await page.click('button:has-text("Add the secret")');
    const second = await page.textContent('#secret');
    check.equal([await send(address, first, 'd-3', '{}'), await send(address, second, 'd-4', '{}')], [200, 200], 'with the old and the new one');
    await page.click('text=I have kept it');
    await page.locator('button:has-text("End now")').nth(1).click();
    check.equal([await send(address, first, 'd-5', '{}'), await send(address, second, 'd-6', '{}')], [401, 200], 'after the old one is ended');
    await page.locator('#arrived tbody tr', { hasText: 'Accepted' }).locator('a').last().click();
    check(page.url().includes('/portal/parcels/events/evt_'), 'the event is a click away: ' + page.url());
    await page.goto(w.base + '/sources/hub/remove');
    await page.click('button:has-text("Remove the source")');
    check((await page.textContent('.done')).includes('removed'), 'removed');
  },

  'sources: every page of theirs: nobody’s text is markup, axe is content, it fits from 320 to 1920 px': async (w, check) => {
    await w.api('PUT', '/v1/sources/evil', { provider: 'github', tenant: 'parcels', secrets: ['a-secret-of-the-tests'] });
    for (const [at, id] of [[w.base + '/in/evil', w.evil[0]], [w.base + '/in/evil', w.evil[1]]]) await send(at, 'a-secret-of-the-tests', id, JSON.stringify({ html: w.evil }));
    await w.until('a request is there', async () => (await w.api('GET', '/v1/sources/evil/requests')).data.length);
    for (const colorScheme of ['light', 'dark']) {
      const page = await (await w.context({ colorScheme })).newPage();
      await page.goto((await w.api('POST', '/v1/operator-sessions', {})).url);
      await page.click('[data-continue]');
      for (const at of ['/sources', '/sources/evil', '/sources/new', '/sources/evil/edit', '/sources/evil/remove']) {
        if (colorScheme === 'dark' && at !== '/sources/evil') continue; // the others are made of the same parts
        check.equal((await page.goto(w.base + at)).status(), 200, at);
        check.equal(await page.$$eval('main img, main script, main [onerror], main iframe, main a[href^="javascript:"]', e => e.map(x => x.outerHTML)), [], at + ' holds markup of a stranger');
        await page.evaluate(() => document.querySelectorAll('details').forEach(d => d.open = true));
        await page.evaluate(axe);
        check.equal(await serious(page), [], `${at}, ${colorScheme}`);
        for (const width of colorScheme === 'light' ? [320, 900, 1920, 1280] : []) {
          await page.setViewportSize({ width, height: 900 });
          const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          check(over <= 0, `${at} at ${width} px is ${over} px too wide`);
        }
      }
    }
    await w.api('DELETE', '/v1/sources/evil');
  },
};
