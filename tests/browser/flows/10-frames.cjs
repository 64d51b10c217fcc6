'use strict';
// The portal within a host's page, and within one that it was not offered to: the same page of the
// receivers', under another name and so of another origin. Both are really on loopback, since a
// browser lets no page from elsewhere into it.
module.exports = {
  'frames: the host’s page may show the portal, another site’s may not, nor click through it': async (w, check) => {
    const context = await w.context({ elsewhere: true });
    const host = w.control, stranger = w.control.replace('127.0.0.1', 'localhost');
    const { url } = await w.link('parcels');
    const around = `<!doctype html><title>host</title><iframe name=portal width=900 height=700 src="${url}"></iframe>`;
    await w.answer('/framing', { headers: { 'Content-Type': 'text/html' }, body: around });
    const page = await context.newPage();
    await page.goto(host + '/framing');
    await page.frameLocator('iframe').locator('[data-continue]').waitFor();
    check((await page.frameLocator('iframe').locator('h1').textContent()).includes('parcels'), 'the host shows the page of the link');
    check(!await page.frameLocator('iframe').locator('.brand').first().isVisible(), 'without our brand');

    const refused = [];
    const other = await context.newPage();
    other.on('console', m => refused.push(m.text()));
    await other.goto(stranger + '/framing');
    await w.until('the browser refuses the frame', () => refused.some(text => /frame-ancestors/.test(text)));
    const frame = other.frames().find(f => f !== other.mainFrame());
    check(!frame || await frame.locator('[data-continue]').count().catch(() => 0) === 0, 'nothing of ours is in a stranger’s frame');
    w.trouble.splice(0, w.trouble.length, ...w.trouble.filter(t => !/frame-ancestors/.test(t))); // that refusal is what was wanted
    check.equal((await fetch(url)).status, 200, 'and the link is not used up by it');

    // The headers, for who reads them: the host alone, and no frame at all for the dashboard's page.
    const policy = (await fetch(url)).headers.get('content-security-policy');
    check.equal(/frame-ancestors ([^;]*)/.exec(policy)[1], host, 'the policy');
  },
};
