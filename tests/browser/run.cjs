// Runs the flows of flows/ in one browser, one after the other, and prints each as a line of JSON.
'use strict';
const fs = require('fs'), path = require('path');
const { chromium } = require('playwright-core');
const { World } = require('./world.cjs');

const settings = JSON.parse(process.argv[2]);

(async () => {
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  try {
    const world = new World(settings, browser);
    const flows = [['the world is made', () => world.make()]];
    for (const file of fs.readdirSync(path.join(__dirname, 'flows')).sort()) {
      flows.push(...Object.entries(require('./flows/' + file)));
    }
    for (const [name, flow] of flows) {
      if (settings.only && !name.includes(settings.only) && name !== 'the world is made') continue;
      const began = Date.now(), faults = [];
      const check = (holds, what) => { if (!holds) faults.push(what); return !!holds; };
      check.equal = (got, want, what) => check(JSON.stringify(got) === JSON.stringify(want), `${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
      try {
        await flow(world, check);
      } catch (e) {
        faults.push((e.stack || String(e)).slice(0, 3000), ...await world.shown());
      }
      faults.push(...await world.tidy());
      console.log(JSON.stringify({ name, ms: Date.now() - began, faults: faults.slice(0, 20) }));
      if (name === 'the world is made' && faults.length) break;
    }
  } finally {
    await browser.close();
  }
})().catch(e => { console.error(e); process.exit(1); });
