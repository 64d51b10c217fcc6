'use strict';
// Ways from one page to the next that a look at a single page does not show.
module.exports = {
  'a draft: made with credentials, tested, then started, without script': async (w, check) => {
    const page = await w.open('parcels', {}, { javaScriptEnabled: false });
    await page.goto(w.at('parcels', 'endpoints', 'new'));
    await page.fill('[name=url]', 'http://hooks.parcels.example.com/v1/draft');
    await page.fill('[name=event_types]', 'draft.*');
    await page.click('summary:has-text("Credentials")');
    await page.fill('[name=auth_user]', 'sam');
    await page.fill('[name=auth_password]', 'open sesame');
    await page.check('[name=state][value=draft]');
    await page.click('button:has-text("Add the endpoint")');
    await page.click('text=I have kept it');
    check((await page.textContent('main')).includes('This is a draft'), 'the page says that nothing is sent');
    const event = await w.publish('parcels', 'draft.before', '{}');
    await w.until('it is routed', async () => (await w.api('GET', '/v1/tenants/parcels/events/' + event)).state !== 'pending');
    await page.click('button:has-text("Send test event")');
    await page.waitForURL('**/deliveries/dlv_*');
    const test = page.url().split('/').pop();
    await w.until('the test arrives', async () => await w.hits('/v1/draft') === 1);
    check.equal((await w.last('/v1/draft')).headers.Authorization, ['Basic ' + Buffer.from('sam:open sesame').toString('base64')], 'with the credentials');
    await w.until('it is recorded', async () => (await w.api('GET', '/v1/deliveries/' + test)).state === 'delivered');
    await page.reload();
    check(!(await page.content()).includes('open sesame') && !(await page.content()).includes(Buffer.from('sam:open sesame').toString('base64')), 'the page shows no credential');
    await page.click('button:has-text("Start sending")');
    check((await page.textContent('.done')).includes('Started'), 'started');
    check.equal(await w.hits('/v1/draft'), 1, 'what was published before is not sent');
    await w.publish('parcels', 'draft.after', '{}');
    await w.until('what comes after is', async () => await w.hits('/v1/draft') === 2);
  },

  'a failed delivery: to the ones beside it, and a command that is signed now': async (w, check) => {
    await w.answer('/v1/beside', { status: 404 });
    const ep = await w.api('PUT', '/v1/tenants/parcels/endpoints/beside', { url: 'http://hooks.parcels.example.com/v1/beside', event_types: ['beside.*'] });
    const ids = [];
    for (let i = 0; i < 2; i++) ids.push((await w.ended('parcels', await w.publish('parcels', 'beside.' + i, w.exact)))[0].id);
    ids.sort();
    const page = await w.open('parcels');
    await page.goto(w.at('parcels', 'deliveries', ids[1]));
    await page.click('text=Older failed');
    check.equal(page.url(), w.at('parcels', 'deliveries', ids[0]), 'the older one');
    await page.click('text=Newer failed');
    check.equal(page.url(), w.at('parcels', 'deliveries', ids[1]), 'and back');
    const copied = () => page.evaluate(() => navigator.clipboard.readText());
    await page.evaluate(() => navigator.clipboard.writeText(''));
    await page.keyboard.press('c');
    const command = await w.until('the command is copied', copied);
    check.equal(page.url(), w.at('parcels', 'deliveries', ids[1]), 'without leaving the page');
    // A shell runs it as it is; what arrives verifies by arithmetic of our own.
    const before = await w.hits('/v1/beside');
    await w.answer('/v1/beside', { status: 204 });
    require('child_process').execFileSync('/bin/sh', ['-c', command.replace('http://hooks.parcels.example.com', w.control)]);
    await w.until('it arrives', async () => await w.hits('/v1/beside') === before + 1);
    const { headers, body } = await w.last('/v1/beside'), bytes = Buffer.from(body, 'base64');
    check.equal(bytes.toString(), w.exact, 'its bytes, digit for digit');
    const secret = Buffer.from(ep.secret.replace('whsec_', ''), 'base64'), at = headers['Webhook-Timestamp'][0];
    const want = 'v1,' + require('crypto').createHmac('sha256', secret).update(`${headers['Webhook-Id'][0]}.${at}.`).update(bytes).digest('base64');
    check.equal(headers['Webhook-Signature'], [want], 'its signature');
    const sent = (await w.api('GET', `/v1/tenants/parcels/deliveries/${ids[1]}/attempts`)).data[0].request.headers;
    check(+at >= +sent['webhook-timestamp'] && want !== sent['webhook-signature'] || at === sent['webhook-timestamp'], 'it is signed now');
    const looking = await w.open('parcels', { read_only: true });
    check.equal((await looking.goto(w.at('parcels', 'deliveries', ids[1]) + '/curl')).status(), 403, 'who may only look gets no signature');
  },
};
