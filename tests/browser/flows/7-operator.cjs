'use strict';
// The operator's side: the dashboard.
const fs = require('fs');
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const serious = page => page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }).then(r => r.violations
  .filter(v => v.impact === 'serious' || v.impact === 'critical').map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(' | '))));

// signIn opens the dashboard by a link, as an operator does.
async function signIn(w, options = {}) {
  const page = await (await w.context(options)).newPage();
  const { url } = await w.api('POST', '/v1/operator-sessions', options.session || {});
  await page.goto(url);
  await page.click('[data-continue]');
  await page.waitForURL(w.base + '/');
  return page;
}

const pages = w => ({
  overview: '/', 'overview-hour': '/?period=1h', 'all-deliveries': '/deliveries', 'all-failed': '/deliveries?state=dead', 'all-none': '/deliveries?event_type=no.such', 'all-endpoints': '/endpoints',
  'all-events': '/events', tenants: '/tenants', 'tenant-new': '/tenants/new', tenant: '/tenants/parcels', search: '/search?q=parcels', 'search-none': '/search?q=' + encodeURIComponent(w.evil[1]),
  replays: '/replays', erasures: '/erasures', audit: '/audit', 'operator-in-tenant': '/portal/parcels/deliveries',
});

module.exports = {
  'dashboard: the operator signs in by key, and nobody without': async (w, check) => {
    const page = await (await w.context()).newPage();
    await page.goto(w.base + '/deliveries?state=dead');
    check(page.url().includes('/sign-in?back='), 'a stranger is asked to sign in: ' + page.url());
    await page.fill('[name=key]', 'not-the-key');
    await page.press('[name=key]', 'Enter');
    check((await page.textContent('#key-e')).includes('not known here'), 'a wrong key is refused in words');
    await w.picture(page, 'sign-in');
    await page.fill('[name=key]', w.key);
    await page.press('[name=key]', 'Enter');
    await page.waitForURL(w.base + '/deliveries?state=dead');
    check(!(await page.content()).includes(w.key), 'the key is on no page');
    await page.click('text=Sign out');
    await page.goto(w.base + '/');
    check(page.url().includes('/sign-in'), 'signed out');
  },

  'dashboard: the operator sees who is hurting without opening SQL, and gets it redelivered': async (w, check) => {
    const page = await signIn(w);
    await w.until('the overview names the broken endpoint', async () => {
      await page.reload();
      return (await page.textContent('#hurting')).includes('down.parcels.example.com');
    });
    check(/customer is hurting|customers are hurting/.test(await page.textContent('#sentence')), 'one sentence: ' + await page.textContent('#sentence'));
    check.equal(await page.locator('#figures dt').count(), 7, 'seven figures');
    check((await page.textContent('#waiting')).includes('Breaker open'), 'why deliveries wait');
    check((await page.getAttribute('#nodes svg', 'aria-label')).includes('0 without an owner'), 'the shards');
    check.equal(await page.locator('svg.fig[role=img]:visible').count() >= 5, true, 'charts');
    await page.locator('details.alt summary').first().click();
    check(await page.locator('details.alt table').first().isVisible(), 'a chart is a table too');
    await w.picture(page, 'overview');
    // From here to the failed delivery, and its replay.
    await w.answer('/v1/gone', { status: 404, body: 'not here' });
    await w.ended('parcels', await w.publish('parcels', 'refund.disputed', '{"n":2}'));
    await page.click('nav >> text=Deliveries');
    await page.click('nav.states >> text=Failed');
    const hits = await w.hits('/v1/gone');
    await w.answer('/v1/gone', { status: 204 });
    await page.locator('tr', { hasText: 'refund.disputed' }).getByRole('button', { name: /Replay/ }).click();
    await page.waitForSelector('[role=status]');
    await w.until('it is delivered again', async () => await w.hits('/v1/gone') === hits + 1);
  },

  'dashboard: search leads to anything by any id': async (w, check) => {
    const page = await signIn(w);
    await page.press('body', '/');
    await page.keyboard.type(w.dlv['clock.checked']);
    await page.keyboard.press('Enter');
    await page.waitForURL(w.at('parcels', 'deliveries', w.dlv['clock.checked']));
    await page.goto(w.base + '/search?q=' + encodeURIComponent('ledger.parcels'));
    check((await page.textContent('main table')).includes('ledger.parcels.example.com'), 'a host');
    await page.goto(w.base + '/search?q=' + w.evt['nobody.wants']);
    check(page.url().includes('/portal/parcels/events/'), 'an event');
  },

  'dashboard: the stop switch, a tenant, and what only may look': async (w, check) => {
    const page = await signIn(w);
    await page.locator('summary', { hasText: 'Stop sending' }).click();
    await page.fill('[name=reason]', 'a test');
    await page.click('button:has-text("Stop sending")');
    check((await page.textContent('main')).includes('Sending is stopped for everybody'), 'it says so');
    check.equal((await w.api('GET', '/v1/dispatch')).state, 'paused', 'it is so');
    await page.click('text=Start sending again');
    check.equal((await w.api('GET', '/v1/dispatch')).state, 'running', 'and back');
    await page.goto(w.base + '/tenants/new');
    await page.fill('[name=tenant]', 'a key that is none');
    await page.click('button:has-text("Add the tenant")');
    check.equal(await page.getAttribute('[name=tenant]', 'aria-invalid'), 'true', 'a bad key is refused at its field');
    await page.fill('[name=tenant]', 'made-here');
    await page.fill('[name=name]', w.evil[0]);
    await page.click('button:has-text("Add the tenant")');
    await page.waitForURL(w.base + '/tenants/made-here');
    check.equal(await page.textContent('h1 bdi'), w.evil[0], 'its name is shown as it is');
    const looking = await signIn(w, { session: { read_only: true } });
    check.equal(await looking.locator('main button:visible', { hasText: /Replay|Probe|Stop|Add|Save/ }).count(), 0, 'acts are absent');
  },

  'dashboard: the live list rests while a row is selected': async (w, check) => {
    const page = await signIn(w);
    const first = () => page.locator('#rows tbody tr').first().textContent();
    await page.locator('#rows tbody input[type=checkbox]').first().check();
    const before = await first();
    await w.publish('parcels', 'payment.succeeded', '{"live":1}');
    await page.waitForTimeout(6500);
    check.equal(await first(), before, 'nothing moved under the selection');
    await page.locator('#rows tbody input[type=checkbox]').first().uncheck();
    await page.evaluate(() => document.activeElement.blur());
    await w.until('new rows come', async () => await first() !== before);
  },

  'dashboard: every page of the dashboard: nobody’s text is markup, axe is content, it fits from 320 to 1920 px': async (w, check) => {
    for (const colorScheme of ['light', 'dark']) {
      const page = await signIn(w, { colorScheme });
      for (const [name, at] of Object.entries(pages(w))) {
        if (colorScheme === 'dark' && !/^(overview|tenant|all-failed|audit)$/.test(name)) continue; // the others are made of the same parts
        const r = await page.goto(w.base + at), bytes = (await r.body()).length;
        check.equal(r.status(), 200, name);
        check(bytes <= 200 << 10, `${name} has ${bytes} bytes`);
        check.equal(await page.$$eval('main img, main script, main [onerror], main iframe, main a[href^="javascript:"]', e => e.map(x => x.outerHTML)), [], name + ' holds markup of a stranger');
        await page.evaluate(axe);
        check.equal(await serious(page), [], `${name}, ${colorScheme}`);
        if (colorScheme === 'dark') { if (name === 'overview') await w.picture(page, 'overview-dark'); continue; }
        for (const width of [320, 900, 1920, 1280]) {
          await page.setViewportSize({ width, height: 900 });
          const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          if (!check(over <= 0, `${name} at ${width} px is ${over} px too wide`)) check(false, await page.evaluate(() => [...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + .5 && !e.closest('.tall')).slice(0, 4).map(e => e.outerHTML.slice(0, 120)).join(' | ')));
        }
      }
    }
  },
};
