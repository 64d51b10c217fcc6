'use strict';
module.exports = {
  'a link works once, in one browser, and looking at it uses nothing up': async (w, check) => {
    const { url } = await w.link('parcels', { user: { id: 'u1', name: 'Sam' } });
    for (let i = 0; i < 3; i++) check.equal((await fetch(url)).status, 200, 'a mail scanner’s look');
    const page = await (await w.context()).newPage();
    await page.goto(url);
    check((await page.textContent('h1')).includes('parcels'), 'the page says whose webhooks they are');
    check((await page.textContent('main')).includes('You are Sam'), 'and to whom it was given');
    await w.picture(page, 'open');
    await page.click('[data-continue]');
    check.equal(page.url(), w.at('parcels', 'deliveries'), 'the address holds no code');
    await page.goto(url);
    await page.waitForLoadState();
    check(!(await page.textContent('h1')).includes('has been used'), 'the browser that holds the session is let through');

    const other = await (await w.context()).newPage();
    const r = await other.goto(url);
    check.equal([r.status(), await other.textContent('h1')], [410, 'This link has been used'], 'another browser');
    check.equal((await fetch(url, { method: 'POST' })).status, 410, 'another browser that posts');
    await w.picture(other, 'link-used');
  },

  'expired, revoked and broken links say so, and who is not signed in is told': async (w, check) => {
    const page = await (await w.context()).newPage();
    const soon = await w.link('parcels', { link_expires_in_seconds: 1, return_url: 'https://pay.example.com/settings' });
    await w.until('the link expires', async () => (await fetch(soon.url)).status === 410);
    await page.goto(soon.url);
    check.equal(await page.textContent('h1'), 'This link has expired', 'expired');
    check.equal(await page.getAttribute('main a', 'href'), 'https://pay.example.com/settings', 'the way back');
    const revoked = await w.link('parcels');
    await w.api('DELETE', '/v1/tenants/parcels/portal-sessions/' + revoked.id);
    await page.goto(revoked.url);
    check.equal(await page.textContent('h1'), 'This link was taken back', 'revoked');
    const r = await page.goto(revoked.url.slice(0, -1) + (revoked.url.endsWith('A') ? 'B' : 'A'));
    check.equal([r.status(), await page.textContent('h1')], [404, 'This is not a link of ours'], 'broken');
    const none = await page.goto(w.at('parcels', 'deliveries'));
    check.equal([none.status(), await page.textContent('h1')], [401, 'You are not signed in here'], 'without a session');
  },

  'a session ends by signing out, and at once when it is revoked': async (w, check) => {
    const page = await w.open('parcels');
    await page.click('text=Sign out');
    check.equal(await page.textContent('h1'), 'You are signed out', 'signed out');
    check.equal((await page.goto(w.at('parcels', 'deliveries'))).status(), 401, 'after it');
    const context = await w.context(), second = await context.newPage(), link = await w.link('parcels');
    await second.goto(link.url);
    await second.click('[data-continue]');
    await w.api('DELETE', '/v1/tenants/parcels/portal-sessions/' + link.id);
    check.equal((await second.goto(w.at('parcels', 'endpoints'))).status(), 401, 'after it was revoked');
  },

  'a session is for one tenant': async (w, check) => {
    const page = await w.open('parcels');
    for (const p of ['deliveries', 'events', 'endpoints', 'recover']) check.equal((await page.goto(w.at('rival', p))).status(), 401, 'the rival’s ' + p);
  },
};
