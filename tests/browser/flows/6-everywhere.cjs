'use strict';
// What holds on every page.
const fs = require('fs');
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const serious = (page, rules) => page.evaluate(rules => axe.run(document, { resultTypes: ['violations'], ...(rules ? { runOnly: rules } : {}) }).then(r => r.violations
  .filter(v => v.impact === 'serious' || v.impact === 'critical').map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(' | '))), rules);

// Pages whose pictures are worth looking at.
const pictured = /^(deliveries|delivery-clock|delivery-evil|endpoint-down|endpoints|events|event|endpoint-edit|recover|delivery-retrying|missing)$/;

module.exports = {
  'every page: nobody’s text is markup, axe is content, it is light and fits from 320 to 1920 px': async (w, check) => {
    const page = await w.open('parcels', { user: { id: 'u1', name: 'Sam' } }, { colorScheme: 'light' });
    const titles = {}, assets = {};
    page.on('response', async r => { if (r.url().includes('/assets/')) assets[r.url()] = (await r.body().catch(() => '')).length; });
    for (const [name, at] of Object.entries(w.pages())) {
      const r = await page.goto(at), bytes = (await r.body()).length;
      check(bytes <= 200 << 10, `${name} has ${bytes} bytes`);
      check.equal([await page.$$eval('h1', h => h.length), await page.getAttribute('html', 'lang')], [1, 'en'], name + ': headings and language');
      titles[await page.title()] = name;
      if (pictured.test(name)) await w.picture(page, `${name}-light-1280`);
      if (name === 'deliveries') await page.screenshot({ path: require('path').join(w.pictures, 'deliveries.png') }); // for docs/images
      await page.evaluate(() => document.querySelectorAll('details').forEach(d => d.open = true));
      check.equal(await page.$$eval('main img, main script, main [onerror], main [onload], main iframe, main a[href^="javascript:"]', e => e.map(x => x.outerHTML)), [], name + ' holds markup of a stranger');
      check(!/whsec_[A-Za-z0-9+/]/.test(await page.content()), name + ' holds a secret');
      await page.evaluate(axe);
      check.equal(await serious(page), [], name + ', light, 1280');
      for (const width of [320, 360, 640, 896, 1024, 1920, 1280]) {
        await page.setViewportSize({ width, height: 900 });
        const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        check(over <= 0, `${name} at ${width} px is ${over} px too wide`);
      }
    }
    const weight = Object.values(assets).reduce((a, b) => a + b, 0);
    check(weight > 0 && weight < 40 << 10, 'assets are ' + weight + ' bytes');
    check(Object.keys(titles).length > 12, 'titles: ' + Object.keys(titles).join(', '));
  },

  'every page in the dark and on a telephone: axe is content': async (w, check) => {
    const page = await w.open('parcels', { user: { id: 'u1', name: 'Sam' } }, { colorScheme: 'dark', viewport: { width: 390, height: 900 } });
    for (const [name, at] of Object.entries(w.pages())) {
      await page.goto(at);
      await page.evaluate(axe);
      check.equal(await serious(page, ['color-contrast', 'target-size', 'scrollable-region-focusable', 'aria-hidden-focus']), [], name + ', dark, 390');
      if (pictured.test(name)) await w.picture(page, `${name}-dark-390`);
    }
  },

  'what strangers wrote is shown as it is': async (w, check) => {
    const page = await w.open('parcels');
    await page.goto(w.pages()['delivery-evil']);
    const answer = await page.textContent('[id$=-answer] pre');
    for (const text of w.evil) check(answer.includes(text), 'the answer is not shown as it is: ' + text);
    check((await page.textContent('[id$=-request]')).includes(w.evil[1]), 'a header of the customer’s own');
    await page.goto(w.pages()['endpoint-evil']);
    check.equal(await page.textContent('h1 bdi'), w.evil[0], 'a name is shown as it is');
    await page.goto(w.pages()['endpoint-edit']);
    check.equal(await page.inputValue('[name=description]'), w.evil[0], 'and in its field');
  },

  'theme and time zone are kept by the server': async (w, check) => {
    const page = await w.open('parcels', {}, { timezoneId: 'Asia/Kolkata' });
    await page.click('.foot >> text=Dark');
    check.equal(await page.getAttribute('html', 'data-theme'), 'dark', 'the page after it');
    check((await (await page.request.get(page.url())).text()).includes('data-theme="dark"'), 'is written by the server');
    await page.click('.foot >> text=Auto');
    check.equal(await page.getAttribute('html', 'data-theme'), null, 'auto again');
    const utc = await page.textContent('#rows time');
    await page.click('.top >> text=Local');
    check.equal(await page.textContent('[data-tz-name]'), 'UTC+5:30', 'the zone is named');
    const minutes = s => { const [, h, m] = /(\d\d):(\d\d)/.exec(s); return +h * 60 + +m; };
    check.equal((minutes(await page.textContent('#rows time')) - minutes(utc) + 1440) % 1440, 330, 'and times are in it');
    await page.click('.top >> text=UTC');
    check.equal(await page.textContent('[data-tz-name]'), 'UTC', 'UTC again');
  },

  'everything works without script': async (w, check) => {
    const page = await w.open('parcels', {}, { javaScriptEnabled: false });
    await page.selectOption('[name=endpoint_id]', w.ep.gone);
    await page.click('text=Apply');
    check.equal(new URL(page.url()).search, '?endpoint_id=' + w.ep.gone, 'a filter, by a short address');
    await page.goto(w.at('parcels', 'deliveries'));
    await page.click('.foot >> text=Dark');
    check.equal(await page.getAttribute('html', 'data-theme'), 'dark', 'the theme');
    await page.click('.top >> text=Local');
    await page.selectOption('main select[name=zone]', 'Asia/Kolkata');
    await page.click('text=Show times in this zone');
    check.equal(await page.textContent('[data-tz-name]'), 'UTC+5:30', 'the zone');
    const before = await w.hits('/v1/clock');
    await page.goto(w.at('parcels', 'deliveries', w.dlv['clock.checked']));
    await page.click('[data-replay]');
    check((await page.textContent('.done')).includes('under way'), 'a replay');
    await w.until('it arrives', async () => await w.hits('/v1/clock') === before + 1);
    await page.reload();
    check(!await page.$('.done'), 'what was said once is not said again');
    await page.click('details[open] >> text=Our request');
    check(await page.isVisible('[id$=-request]:target pre'), 'tabs');
    await page.goto(w.at('parcels', 'deliveries') + '?state=dead&endpoint_id=' + w.ep.clock);
    await page.check('[name=delivery_ids]');
    check(await page.isVisible('.bulk'), 'the bar of selected rows');
    await page.goto(w.at('parcels', 'endpoints', w.ep.payments));
    await page.click('button:has-text("Pause")');
    await page.click('button:has-text("Resume")');
    check((await page.textContent('.done')).includes('Resumed'), 'pause and resume');
    await page.click('[popovertarget=keys]');
    check(await page.isVisible('#keys'), 'the keys sheet');
  },

  'an act that another site’s page sends does nothing': async (w, check) => {
    const page = await w.open('parcels', {}, { elsewhere: true });
    await page.goto(w.control + '/page');
    await page.setContent(`<form method=post action="${w.at('parcels', 'endpoints', w.ep.payments)}/pause"><button>go</button></form>`);
    await page.click('button');
    await page.waitForLoadState();
    check.equal((await w.api('GET', '/v1/endpoints/' + w.ep.payments)).state, 'active', 'the endpoint');
  },

  'live updates come by themselves, and rest while a row is selected': async (w, check) => {
    const page = await w.open('parcels');
    await page.click('[data-live]');
    const first = () => page.$eval('#rows tbody:last-child [data-row]', a => a.href);
    const before = await first();
    await w.publish('parcels', 'payment.live', '{}');
    await w.until('the new row', async () => await first() !== before);
    await page.check('#rows tbody:last-child [name=delivery_ids] >> nth=0');
    const held = await first();
    await w.publish('parcels', 'payment.later', '{}');
    await page.waitForResponse(() => true, { timeout: 4000 }).catch(() => { }); // none comes: the page rests
    check.equal(await first(), held, 'nothing moved under the selection');
  },
};
