"""The page in a real browser without a network: what it shows, wide and narrow, light and dark, and on paper."""

import os
import re
import subprocess
import unittest

from PIL import Image

from common import Case, measured, needs, recorded, whole

LIGHT, DARK = {"paper": "#ffffff", "ours": "#1257c9"}, {"paper": "#14171c", "ours": "#79aeff"}


def rgb(colour):
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


def near(colour, wanted):
    return all(abs(a - b) <= 12 for a, b in zip(colour, wanted))


class Browser(Case):
    def chromium(self, *words):
        # As root it has no sandbox; the page is ours. No network at all.
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
                   "--force-device-scale-factor=1", "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-extensions",
                   "--disable-background-networking", f"--user-data-dir={self.folder / 'profile'}", *words]  # fmt: skip
        environment = os.environ | {"HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder)}
        environment.pop("DBUS_SESSION_BUS_ADDRESS", None)
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=90, env=environment)

    def page(self, bundle):
        self.make(bundle)
        return f"file://{self.folder / 'report.html'}"

    def shot(self, bundle, width, height, *words):
        path = self.folder / "shot.png"
        self.chromium(f"--window-size={width},{height}", f"--screenshot={path}", *words, self.page(bundle))
        image = Image.open(path).convert("RGB")
        self.assertEqual(image.size, (width, height))
        return image

    def count(self, image, colour, box):
        return sum(n for n, c in image.crop(box).getcolors(1 << 24) if near(c, rgb(colour)))

    def rows(self, image, colour, box):
        """Lines of pixels in the box that have this colour, and the columns."""
        pixels = image.load()
        found = [(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3]) if near(pixels[x, y], rgb(colour))]
        return {y for _, y in found}, {x for x, _ in found}


class Shown(Browser):
    def test_what_the_browser_has_is_what_was_measured(self):
        dom = self.chromium("--dump-dom", self.page(whole())).stdout
        text = re.sub(r"<[^>]*>", " ", dom)
        (group,) = [group for group in measured()["groups"] if group["type"] == "bf16"]
        for row in group["rows"]:
            wanted = row["fastest"] if row["chosen"] == "stock" else row["chosen"]
            best = next(item["step_us"] for item in row["ours"] if item["algorithm"] == wanted)
            self.assertIn(f"{best:.2f}" if best < 100 else f"{best:.1f}", text)
        self.assertEqual(dom.count('class="chart"'), 1)
        self.assertIn("Enabled, but NVLink joins all GPUs", text)

    def look(self, colours, *words):
        image = self.shot(whole(), 1280, 900, *words)
        self.assertEqual(image.getpixel((5, 5)), rgb(colours["paper"]))
        self.assertGreater(len(image.getcolors(1 << 24)), 200)
        # One screen: the figures at the top, the picture at the left, the table with its bars at the right.
        self.assertGreater(self.count(image, colours["ours"], (30, 180, 1250, 300)), 300)
        down, across = self.rows(image, colours["ours"], (30, 330, 600, 880))
        self.assertGreater(len(down), 150)
        self.assertGreater(len(across), 400)
        down, _ = self.rows(image, colours["ours"], (600, 330, 1250, 900))
        self.assertGreater(len(down), 8 * (len(measured()["groups"][0]["rows"]) - 6))
        return image

    def test_one_screen_has_figures_picture_and_table(self):
        self.look(LIGHT)

    def test_a_dark_desk_gets_a_dark_page(self):
        self.look(DARK, "--blink-settings=preferredColorScheme=0")

    def test_a_phone_gets_it_all_and_nothing_beside_the_edge(self):
        image = self.shot(whole(), 400, 3000)
        for x in (1, 3, 396, 398):
            column = {image.getpixel((x, y)) for y in range(image.height)}
            self.assertEqual(column, {rgb(LIGHT["paper"])}, x)
        down, across = self.rows(image, LIGHT["ours"], (10, 400, 390, 1200))
        self.assertGreater(len(down), 150)
        self.assertGreater(len(across), 250)

    def test_the_machine_is_drawn(self):
        image = self.shot(recorded("m4-switch-8x3090-nop2p"), 1280, 900)
        frames, _ = self.rows(image, LIGHT["ours"], (400, 100, 900, 900))
        self.assertGreater(len(frames), 8 * 30)  # the sides of eight boxes

    def test_paper_has_all_of_it(self):
        path = self.folder / "page.pdf"
        self.chromium(f"--print-to-pdf={path}", "--no-pdf-header-footer", self.page(whole()))
        data = path.read_bytes()
        self.assertTrue(data.startswith(b"%PDF-"))
        pages = len(re.findall(rb"/Type\s*/Page\b", data))
        self.assertTrue(2 <= pages <= 9, pages)


if __name__ == "__main__":
    needs("chromium")
    unittest.main()
