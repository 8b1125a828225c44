/* Light and dark as the reader has it, narrow and wide, and on paper. Colours are names, so that each is chosen once.
 */
#include "verify/page_parts.h"

/* clang-format off: a style sheet, line by line */
const char *const sp_page_style[] = {
    ":root { color-scheme: light dark; --paper: #ffffff; --card: #f5f6f8; --ink: #1a1d21; --soft: #59606a; --line: "
    "#dfe2e7; --grid: #e7e9ed;",
    " --ours: #1257c9; --host: #0b7f6b; --nccl: #bd3f0c; --nop2p: #a86200; --v1: #8045b5; --model: #7b828c;",
    " --good: #116b39; --good-bg: #e2f3e8; --warn: #8a5200; --warn-bg: #fbeed7; --bad: #a8221b; --bad-bg: #fbe4e2; "
    "--plain-bg: #e9ebef; }",
    "@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --card: #1c2027; --ink: #e6e9ed; --soft: #a2a9b4; "
    "--line: #323842; --grid: #2a2f38;",
    " --ours: #79aeff; --host: #4fd1b5; --nccl: #ff9466; --nop2p: #e5b04e; --v1: #c79bf2; --model: #8d95a1;",
    " --good: #6fd49a; --good-bg: #17392a; --warn: #f0b65a; --warn-bg: #3d2d12; --bad: #ff8f86; --bad-bg: #46201d; "
    "--plain-bg: #2a2f38; } }",
    "* { box-sizing: border-box; }",
    "body { margin: 0 auto; max-width: 1216px; padding: 20px 24px 40px; background: var(--paper); color: var(--ink);",
    " font: 15px/1.45 system-ui, -apple-system, \"Segoe UI\", Roboto, \"DejaVu Sans\", sans-serif; }",
    "h1 { margin: 0; font-size: 26px; line-height: 1.2; font-weight: 650; letter-spacing: -0.01em; }",
    "h2 { margin: 36px 0 10px; padding-top: 14px; border-top: 1px solid var(--line); font-size: 19px; font-weight: "
    "650; }",
    "h3 { margin: 18px 0 6px; font-size: 16px; font-weight: 650; }",
    "small { color: var(--soft); font-weight: 400; font-size: 13px; }",
    "p { margin: 6px 0 12px; max-width: 75ch; }",
    "code { font: 13px/1.4 ui-monospace, \"SF Mono\", Menlo, Consolas, \"DejaVu Sans Mono\", monospace; }",
    "p code, li code { padding: 1px 6px; border-radius: 4px; background: var(--plain-bg); overflow-wrap: anywhere; }",
    "ul, ol { padding: 0; margin: 0; list-style: none; }",
    ".unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: "
    "nowrap; }",
    ".name { margin: 0 0 4px; color: var(--soft); font-size: 13px; }",
    "header { padding-left: 16px; border-left: 5px solid var(--soft); }",
    "header.done { border-color: var(--good); } header.next { border-color: var(--warn); } header.bad { border-color: "
    "var(--bad); }",
    ".facts { display: flex; flex-wrap: wrap; gap: 0 18px; margin-top: 6px; color: var(--soft); }",
    ".stages { display: grid; grid-template-columns: repeat(5, 1fr); gap: 8px; margin-top: 14px; }",
    ".stages li { padding: 7px 10px 8px; border-radius: 6px; background: var(--card); border-top: 3px solid "
    "var(--line); min-width: 0; overflow-wrap: anywhere; }",
    ".stages strong { font-weight: 600; } .stages .what { display: block; color: var(--soft); font-size: 13px; "
    "line-height: 1.35; }",
    ".stages .done { border-color: var(--good); } .stages .done strong { color: var(--good); }",
    ".stages .next { border-color: var(--warn); } .stages .next strong { color: var(--warn); }",
    ".stages .bad { border-color: var(--bad); } .stages .bad strong { color: var(--bad); }",
    ".stages .later strong { color: var(--soft); }",
    ".command { margin: 12px 0 0; }",
    ".figures { display: grid; grid-template-columns: 1.6fr 1fr 1fr; gap: 12px 28px; margin-top: 18px; }",
    ".figures li { display: flex; gap: 14px; align-items: center; }",
    ".figures strong { font-size: 32px; line-height: 1.1; font-weight: 650; letter-spacing: -0.02em; white-space: "
    "nowrap; }",
    ".figures strong small { font-size: 16px; letter-spacing: 0; color: inherit; }",
    ".figures .good strong { color: var(--ours); } .figures span { color: var(--soft); font-size: 14px; line-height: "
    "1.35; }",
    ".sentences { margin-top: 12px; } .sentences li { padding: 2px 0; }",
    "main > section:first-child + section > h2 { margin-top: 18px; }",
    ".pair { display: grid; grid-template-columns: minmax(0, 5fr) minmax(0, 7fr); gap: 28px; align-items: start; }",
    ".scroll { overflow-x: auto; } .scroll:focus-visible { outline: 2px solid var(--ours); outline-offset: 2px; }",
    "table { border-collapse: collapse; margin: 4px 0 14px; font-size: 13.5px; font-variant-numeric: tabular-nums; }",
    "caption { text-align: left; white-space: nowrap; color: var(--soft); padding-bottom: 5px; font-size: 13px; }",
    ".numbers th, .numbers td { padding-right: 9px; }",
    "th, td { padding: 4px 14px 4px 0; text-align: left; border-bottom: 1px solid var(--grid); white-space: nowrap; "
    "vertical-align: top; font-weight: 400; }",
    "",
    "thead th { color: var(--soft); border-color: var(--line); font-size: 12.5px; vertical-align: bottom; white-space: "
    "normal; }",
    "tbody th { font-weight: 500; } .best { font-weight: 650; }",
    "th:last-child, td:last-child { padding-right: 0; }",
    ".n { text-align: right; } .none { color: var(--soft); } .wrong { color: var(--bad); font-weight: 650; }",
    "td.text { white-space: normal; min-width: 22ch; max-width: 52ch; }",
    ".bar { width: 44px; height: 8px; margin-right: 7px; vertical-align: 1px; } .won .bar { fill: var(--ours); } .lost "
    ".bar { fill: var(--model); }",
    ".lost { color: var(--soft); }",
    "td.yes { color: var(--good); } td.no { color: var(--bad); }",
    ".badge { display: inline-block; padding: 0 7px; border-radius: 9px; font-size: 12px; line-height: 18px; "
    "font-weight: 600; background: var(--plain-bg); color: var(--soft); }",
    ".badge.good { background: var(--good-bg); color: var(--good); } .badge.warn { background: var(--warn-bg); color: "
    "var(--warn); } .badge.bad { background: var(--bad-bg); color: var(--bad); }",
    ".notes { display: flex; flex-wrap: wrap; gap: 2px 24px; margin: 2px 0 10px; color: var(--soft); font-size: 13px; "
    "} .notes strong { font-weight: 600; color: var(--ink); }",
    ".kinds { display: flex; flex-wrap: wrap; gap: 6px 8px; margin: 8px 0 12px; font-size: 13px; }",
    ".kinds li { padding: 2px 10px; border-radius: 12px; background: var(--plain-bg); } .kinds strong { font-weight: "
    "600; }",
    ".kinds .good { background: var(--good-bg); color: var(--good); } .kinds .warn { background: var(--warn-bg); "
    "color: var(--warn); } .kinds .bad { background: var(--bad-bg); color: var(--bad); }",
    ".findings li { padding: 7px 0; border-bottom: 1px solid var(--grid); overflow-wrap: anywhere; } .findings "
    "li:last-child { border: 0; }",
    ".troubles { margin: 0 0 12px; } .troubles li { padding: 4px 0 4px 12px; border-left: 3px solid var(--warn); "
    "margin-bottom: 4px; }",
    ".empty { padding: 14px 16px; border-radius: 6px; background: var(--card); max-width: none; }",
    ".columns { display: flex; flex-wrap: wrap; gap: 4px 56px; align-items: flex-start; } .columns > * { min-width: 0; "
    "}",
    "details { margin: 4px 0 10px; } summary { cursor: pointer; padding: 4px 0; color: var(--ours); }",
    "dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); gap: 8px 24px; margin: 8px 0 "
    "14px; }",
    "dt { color: var(--soft); font-size: 13px; } dd { margin: 0; overflow-wrap: anywhere; }",
    "footer { margin-top: 40px; padding-top: 10px; border-top: 1px solid var(--line); color: var(--soft); font-size: "
    "13px; }",
    "svg text { fill: var(--ink); font-size: 13px; } .chart text { font-size: 14px; } svg.chart { display: block; "
    "width: 100%; height: auto; }",
    ".chart .tick, .chart .axis { fill: var(--soft); font-size: 13px; }",
    ".grid { stroke: var(--grid); fill: none; } .one { stroke: var(--soft); fill: none; stroke-dasharray: 2 3; }",
    ".line path { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; } .line circle { fill: "
    "currentColor; }",
    ".line.ours { color: var(--ours); } .line.ours path { stroke-width: 2.8; } .line.host { color: var(--host); } "
    ".line.host path { stroke-dasharray: 7 4; }",
    ".line.nccl { color: var(--nccl); } .line.nop2p { color: var(--nop2p); } .line.nop2p path { stroke-dasharray: 7 4; "
    "}",
    ".line.v1 { color: var(--v1); } .line.v1 path { stroke-dasharray: 2 3; } .line.model { color: var(--model); } "
    ".line.model path { stroke-width: 1.2; }",
    ".line .left { fill: var(--paper); stroke: currentColor; stroke-width: 1.6; }",
    ".machine { display: block; margin: 4px 0 8px; } .box { fill: var(--card); stroke: var(--line); } .box.gpu { "
    "stroke: var(--ours); }",
    ".machine .first { font-weight: 600; } .machine .light { font-weight: 400; } .machine .second, .machine .link { "
    "fill: var(--soft); font-size: 12px; }",
    ".edge { fill: none; stroke: var(--model); } .edge.narrow { stroke: var(--warn); } .machine .link.narrow { fill: "
    "var(--warn); }",
    ".edge.nvlink { stroke: var(--host); } .machine .link.nvlink { fill: var(--host); }",
    "@media (max-width: 900px) { .pair { grid-template-columns: minmax(0, 1fr); gap: 8px; } .figures { "
    "grid-template-columns: 1fr; } }",
    "@media (max-width: 640px) { body { padding: 14px 14px 32px; } h1 { font-size: 21px; } header { padding-left: "
    "12px; }",
    " .stages { grid-template-columns: 1fr; gap: 4px; } .stages li { border-top: 0; border-left: 3px solid "
    "var(--line); padding: 5px 10px; } .stages .what { display: inline; } .figures strong { min-width: 104px; } .chart "
    "text, .chart .tick, .chart .axis { font-size: 17px; } }",
    "@media print { :root { color-scheme: light; --paper: #ffffff; --card: #ffffff; --ink: #000000; --soft: #444444; "
    "--line: #999999; --grid: #cccccc; --plain-bg: #ffffff;",
    " --ours: #1257c9; --host: #0b7f6b; --nccl: #bd3f0c; --nop2p: #a86200; --v1: #8045b5; --model: #7b828c; --good: "
    "#116b39; --warn: #8a5200; --bad: #a8221b; --good-bg: #ffffff; --warn-bg: #ffffff; --bad-bg: #ffffff; }",
    " body { padding: 0; max-width: none; font-size: 11px; } .scroll { overflow: visible; } table, svg, article, li { "
    "break-inside: avoid; } .badge, .kinds li, .stages li { border: 1px solid currentColor; }",
    " details::details-content { content-visibility: visible; block-size: auto; } }",
    NULL,
};
/* clang-format on */
